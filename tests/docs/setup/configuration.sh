# The example tree, without anything in front of it.
cat > config.toml <<'END'
state_dir = "state"
[[source]]
name = "main"
mount = [{ path = "examples/tree", url = "http://localhost:8000/" }]
END
