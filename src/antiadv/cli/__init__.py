"""The command line: each verb parses text, calls one function of the library, and prints."""
