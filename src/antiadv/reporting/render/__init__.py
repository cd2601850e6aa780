"""One renderer per format: terminal, Markdown, HTML, LaTeX and CSV. Escaping of foreign names happens here."""
