"""What `mkdocs build` writes by itself: settings from YAML files, signatures, method cards, the summary's schema."""
