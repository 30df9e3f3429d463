# Two subscribers, of which one has gone without a word.
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
for name in one two; do
    rsnotify listen http://127.0.0.1:8400/topics/poems/ 2> "$name" > "$name.heard" &
    until grep --quiet 'listening to' "$name"; do sleep 0.1; done
done
kill -KILL $!
sed -i 's/from="2026-10-01/from="2026-10-02/' examples/tree/poems/changelist.xml
until grep --quiet updated one.heard; do sleep 0.1; done
until rsnotify subscriptions list | grep --quiet '^failing'; do sleep 0.1; done
