# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# What the scripts of guests with systemd share.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin SYSTEMD_PAGER=cat SYSTEMD_COLORS=0
unit=mthp_ext.service
dropin=/run/systemd/system/$unit.d
number=0

# Reports the last command's test: ok STATUS NAME.
report() {
	number=$((number + 1))
	if [ "$1" = 0 ]; then
		echo "ok $number - $2"
	else
		echo "not ok $number - $2"
	fi
}

# check NAME COMMAND...: what the command says comes before its line.
check() {
	local name=$1 status
	shift
	"$@"
	status=$?
	if [ $status != 0 ]; then
		echo "# $name: exit $status; the unit and its journal:"
		systemctl status --no-pager --lines=15 $unit
	fi
	report $status "$name"
}

property() { systemctl show --value -p "$1" $unit; }

# until_true SECONDS COMMAND...
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.5
	done
}

link() { mthp_ext status | sed -n 's/.*, link \([0-9]*\)).*/\1/p'; }

# A policy of its own for /sys/fs/cgroup/kept, which outlives its daemon.
keep_one() {
	local daemon
	mkdir /sys/fs/cgroup/kept
	mthp_ext run --root /sys/fs/cgroup/kept --policy headroom --on-exit keep >/run/kept.log 2>&1 &
	daemon=$!
	until_true 60 grep -q 'attached to /kept' /run/kept.log
	kill $daemon
	wait $daemon
}

another_process() {
	local pid
	pid=$(property MainPID)
	[ "$pid" != 0 ] && [ "$pid" != "$1" ] && [ "$(property ActiveState)" = active ]
}

memory_of_probe() { sed -n "s/^$1 //p" /sys/fs/cgroup/system.slice/probe.service/memory.stat; }
probe_is_full() { [ "$(memory_of_probe anon)" -gt $((6 << 20)) ]; }

# Starts a service that fills a buffer of 6 MiB; what the policy counted for it, and its huge pages in bytes.
probe() {
	printf '%s\n' '[Service]' "ExecStart=/bin/bash -c 'dd if=/dev/zero bs=6M count=1 | sleep 600'" \
		>/run/systemd/system/probe.service
	systemctl daemon-reload
	systemctl start probe.service && until_true 20 probe_is_full || return 1
	huge=$(memory_of_probe anon_thp)
	narrowed=$(mthp_ext status --json | sed 's/{"cgroup":/\n&/g' | grep -F '"/system.slice/probe.service"' |
		sed -n 's/.*"narrowed":{.*"small":\([0-9]*\).*/\1/p')
	echo "narrowed by small: ${narrowed:-0}; huge pages: $huge bytes"
	systemctl stop probe.service
}
