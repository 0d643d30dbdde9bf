"""Vector stores and folders of documents: erase people from them, and search what lies in their files afterwards."""
