"""Vector stores and folders of documents: erase people from them, and search their files for remains afterwards."""
