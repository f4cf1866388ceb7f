"""Paper cards: citation, equations -> part -> config key, deviations, and the parts that only that paper has."""
