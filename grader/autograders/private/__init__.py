"""What only the official run knows. Never part of the student image."""
