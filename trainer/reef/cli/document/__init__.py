"""Job documents from what a person gives: files, addresses, flags, experiments of RLlib, and changes to them."""
