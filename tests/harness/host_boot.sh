set -e
hostname "$1"
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd
mount --bind "$2/passwd" /etc/passwd
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/hôme" "$2/hôme"
exec "$3" -D -f "$2/sshd_config" -E "$2/sshd.log"
