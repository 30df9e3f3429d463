# A Source with its own hub, to which anybody on this host may subscribe.
cat > /etc/rsnotify/config.toml <<'END'
state_dir = "/var/lib/rsnotify"
[[source]]
name = "main"
mount = [{ path = "/home/ada/examples/tree", url = "http://localhost:8000/" }]
[embedded_hub]
allow_callback_networks = ["127.0.0.0/8"]
END
export RSNOTIFY_CONFIG=/etc/rsnotify/config.toml
rsnotify run 2> log &
until grep --quiet ' ready' log; do sleep 0.1; done
