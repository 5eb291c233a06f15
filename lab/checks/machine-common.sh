# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# What the scripts of machines with a disk share (lab/checks/machine.py): TAP goes to the port "output", records of Redis
# rows to the port "results". The unit that runs them powers the machine off.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin LC_ALL=C
release=$(uname -r)
number=0

# The device of the virtio port with this name.
port() {
	local one
	for one in /sys/class/virtio-ports/*; do
		[ "$(cat "$one/name")" = "$1" ] && echo "/dev/${one##*/}" && return
	done
	return 1
}

# check NAME COMMAND...
check() {
	local name=$1 word=ok
	shift
	number=$((number + 1))
	"$@" || word="not ok"
	echo "$word $number - $name"
}

no_unit_failed() {
	systemctl --no-pager --failed
	[ -z "$(systemctl --failed --no-legend)" ]
}

cell() {
	local file=$1 status reader
	echo '{"type": "cell"}' >&3
	mkfifo /run/records
	cat /run/records >&3 &
	reader=$!
	LAB_RESULTS=/run/records timeout 1200 /lab/guest bench "$file"
	status=$?
	# It may have failed before it opened the pipe, which its reader would wait for.
	[ $status = 0 ] || kill $reader 2>/dev/null
	wait $reader
	rm /run/records
	# As it was before: the next one sets all up anew.
	swapoff -a
	udevadm settle
	echo 1 >/sys/block/zram0/reset
	find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d -name redis -exec rmdir {} +
	return $status
}

# A row of Redis for each cell that the lab has put there.
rows() {
	local file
	for file in /lab/cell-*.json; do
		check "a row of Redis: ${file##*/}" cell "$file"
	done
}

output=$(port output) && results=$(port results) || exit 1
exec >"$output" 2>&1 3>"$results"
