"""Other frameworks' conventions, in and out."""
