"""How data flows between workers, replay and learners: one plain loop per kind of algorithm."""
