//! What happens while no daemon runs, or while one is killed.
