"""Renderers: the same table as Markdown, HTML, LaTeX or CSV."""
