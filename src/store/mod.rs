//! One SQLite file: what was seen, what each hub was told, what is in flight.
