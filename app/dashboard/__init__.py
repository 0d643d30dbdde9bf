"""The pages below /admin: what the API answers, for people. They have no SQL and no door of their own."""
