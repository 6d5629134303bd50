"""The documents as a site: what mkdocs cannot do by itself (mkdocs.yml)."""
