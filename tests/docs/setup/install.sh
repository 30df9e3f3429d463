# The configuration that the package brings.
cat > /etc/rsnotify/config.toml <<'END'
state_dir = "/var/lib/rsnotify"
[server]
public_url = "https://example.org/"
[[source]]
name = "main"
mount = [{ path = "/srv/www", url = "https://example.org/" }]
END
