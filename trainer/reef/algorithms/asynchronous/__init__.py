"""Algorithms whose workers go on sampling while the learner learns, one file each."""
