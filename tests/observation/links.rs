//! Links, swapped, dangling and in circles.
