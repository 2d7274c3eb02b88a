"""Pictures of the dashboards for docs/monitoring.md, drawn from what a real Prometheus answered; see __main__."""
