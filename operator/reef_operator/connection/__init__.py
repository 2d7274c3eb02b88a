"""The connection to the API server: credentials, request limits and decoding."""
