"""Shows verdicts: as plain text, in the terminal, in a notebook."""
