# A host where rsnotify runs as a service and somebody listens. What systemd does with the unit, a loop does here.
mkdir -p etc/rsnotify/credentials
cp -r examples/tree/. /srv/www
cat > /etc/rsnotify/config.toml <<'END'
state_dir = "/var/lib/rsnotify"
[[source]]
name = "main"
mount = [{ path = "/srv/www", url = "http://localhost:8000/" }]
deletion_grace = "1s"
[embedded_hub]
allow_callback_networks = ["127.0.0.0/8"]
END
export RSNOTIFY_CONFIG=/etc/rsnotify/config.toml
mkfifo orders
cat > bin/systemctl <<'END'
#!/bin/bash
# systemctl ORDER rsnotify: done when it is done.
rm -f done
echo "$1" > orders
until [ -e done ]; do sleep 0.1; done
END
chmod +x bin/systemctl
while read -r order < orders; do
    case $order in
        stop | restart) kill "$daemon"; wait "$daemon" ;;
        reload) kill -HUP "$daemon" ;;
    esac
    case $order in
        start | restart)
            : > log
            rsnotify run 2> log &
            daemon=$!
            until grep --quiet ' ready' log; do sleep 0.1; done
            ;;
    esac
    touch done
done &
systemctl start rsnotify
rsnotify listen http://127.0.0.1:8400/topics/poems/ 2> listener > heard &
until grep --quiet 'listening to' listener; do sleep 0.1; done
