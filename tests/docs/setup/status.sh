# A hub that refuses what it is told, and a set of which several documents have changed.
mkdir -p /srv/www/a
cd /srv/www/a
document() { # document FILE CAPABILITY TIME [ENTRY...]
    echo '<?xml version="1.0" encoding="UTF-8"?>'
    echo '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    echo '        xmlns:rs="http://www.openarchives.org/rs/terms/">'
    echo "  <rs:ln rel=\"up\" href=\"https://example.org/a/capabilitylist.xml\"/>"
    echo "  <rs:md capability=\"$2\" from=\"$3\"/>"
    printf '  %s\n' "${@:4}" '</urlset>'
}
publish() { # publish FILE CAPABILITY TIME [ENTRY...]
    document "$@" > "$1.tmp"
    mv "$1.tmp" "$1"
}
publish capabilitylist.xml capabilitylist 2026-11-01T00:00:00Z \
    '<url><loc>https://example.org/a/resourcelist.xml</loc><rs:md capability="resourcelist"/></url>' \
    '<url><loc>https://example.org/a/changelist.xml</loc><rs:md capability="changelist"/></url>' \
    '<url><loc>https://example.org/framework/</loc><rs:ln rel="hub" href="https://hub.example.net/publish"/>' \
    '<rs:md capability="framework-notification"/></url>'
publish resourcelist.xml resourcelist 2026-11-01T00:00:00Z
publish changelist.xml changelist 2026-11-01T00:00:00Z
cd

cat > hub.conf <<'END'
daemon off;
pid hub.pid;
error_log stderr;
events {}
http {
    access_log off;
    server {
        listen 127.0.0.1:9400;
        location / { return 403 "no topic of that name\n"; }
    }
}
END
cat > /etc/rsnotify/config.toml <<'END'
[server]
public_url = "https://example.org/"
[[source]]
name = "main"
mount = [{ path = "/srv/www", url = "https://example.org/" }]
[window]
hold = "10m"
[[hub]]
url = "https://hub.example.net/publish"
proxy = "none"
END
echo 'state_dir = "/var/lib/rsnotify"' | cat - /etc/rsnotify/config.toml > config.toml
cp config.toml /etc/rsnotify/config.toml
export RSNOTIFY_CONFIG=/etc/rsnotify/config.toml

nginx -p . -c hub.conf &
rsnotify run 2> log &
shows() { # shows TEXT COMMAND...: waits until the command prints it
    until "${@:2}" | grep --quiet "$1"; do sleep 0.1; done
}
shows ' ready' cat log
cd /srv/www/a
publish resourcelist.xml resourcelist 2026-11-02T00:00:00Z
publish changelist.xml changelist 2026-11-02T00:00:00Z
shows 'action required' rsnotify outbox list
publish changelist.xml changelist 2026-11-03T00:00:00Z
publish new.xml changelist 2026-11-03T00:00:00Z
shows 'held  *1 document' rsnotify outbox show https://example.org/framework/ https://hub.example.net/publish
shows 'next  *1 change' rsnotify outbox show https://example.org/framework/ https://hub.example.net/publish
