"""Speed of Reef beside its peers, and what its algorithms learn."""
