# A set that advertises no channel, and a hub elsewhere.
mkdir -p /srv/www/poems
cat > /srv/www/poems/capabilitylist.xml <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
        xmlns:rs="http://www.openarchives.org/rs/terms/">
  <rs:ln rel="up" href="https://example.org/.well-known/resourcesync"/>
  <rs:md capability="capabilitylist"/>
  <url>
    <loc>https://example.org/poems/resourcelist.xml</loc>
    <rs:md capability="resourcelist"/>
  </url>
  <url>
    <loc>https://example.org/poems/changelist.xml</loc>
    <rs:md capability="changelist"/>
  </url>
</urlset>
END
cat > /etc/rsnotify/config.toml <<'END'
[server]
public_url = "https://example.org/"

[[source]]
name = "main"
mount = [{ path = "/srv/www", url = "https://example.org/" }]

[[hub]]
url = "https://hub.example.net/websub/"
END
cp /etc/rsnotify/config.toml config.toml
