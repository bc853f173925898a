"""Reports for people, dashboards and auditors."""
