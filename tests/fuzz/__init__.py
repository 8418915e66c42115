"""Whatever comes in: it is read, or refused in the words that the documentation has for it."""
