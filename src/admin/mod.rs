//! What an operator looks at: health, metrics, status.
