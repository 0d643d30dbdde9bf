"""Vector stores and folders of documents: erase people from them, then search their files for remains."""
