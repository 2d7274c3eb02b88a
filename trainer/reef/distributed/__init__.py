"""Reef on Ray: worker and learner processes, their placement and their failures. The only folder that imports Ray."""
