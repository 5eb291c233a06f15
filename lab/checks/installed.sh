#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The packages on a machine with Debian's own kernel, in `make test-machine`.
. /lab/common.sh
export DEBIAN_FRONTEND=noninteractive
unit=mthp_ext.service

since() { echo "$1 after $SECONDS s"; }

installs() {
	apt-get install -y -q --no-install-recommends -t "$(cat /lab/suite)" "linux-headers-$release" /lab/mthp-ext.deb \
		/lab/mthp-ext-dkms.deb || return 1
	since "installed, and the module built"
	dkms status
	dkms status | grep -q "$release.*: installed"
}

nothing_is_loaded() { ! grep mthp_hook /proc/modules && [ "$(systemctl is-enabled $unit)" = disabled ]; }

loads() {
	modprobe mthp_hook && mthp_ext support || return 1
	mthp_ext support | grep -qx 'carrier: module mthp_hook .*'
}

runs() {
	local log=/run/mthp_ext.log daemon status
	mkdir /sys/fs/cgroup/tried
	mthp_ext run --root /sys/fs/cgroup/tried >$log 2>&1 &
	daemon=$!
	until grep -q 'attached to /tried' $log; do kill -0 $daemon && sleep 0.2 || break; done
	since "a policy attached"
	kill -INT $daemon
	wait $daemon
	status=$?
	cat $log
	rmdir /sys/fs/cgroup/tried
	[ $status = 0 ] && grep -q 'detached from /tried' $log
}

# The hook stays for a second after the last policy, and with it the module.
unloads() {
	local end=$((SECONDS + 30))
	until rmmod mthp_hook; do [ $SECONDS -lt $end ] && sleep 0.5 || return 1; done
	! grep mthp_hook /proc/modules
}

serves() {
	systemctl enable --now $unit && [ "$(systemctl is-active $unit)" = active ] || return 1
	grep mthp_hook /proc/modules && mthp_ext status | grep 'policy default attached to /'
}

stops() {
	local said
	[ "$(systemctl is-active $unit)" = active ] && systemctl disable --now $unit && said=$(mthp_ext status) || return 1
	echo "$said"
	! grep 'attached to /' <<<"$said"
}

is_purged() {
	local left
	apt-get purge -y -q mthp-ext mthp-ext-dkms || return 1
	left=$(find / -xdev -iname '*mthp[-_]*' -not -path '/lab/*' -not -path '/proc/*' -not -path '/sys/*' -not -path '/var/log/*')
	left+=$(find /run /sys/fs/bpf /sys/fs/cgroup -iname '*mthp[-_]*' -not -name mthp_ext.log)
	echo "left: ${left:-nothing}"
	[ -z "$left" ]
}

check "apt installs both packages, and DKMS builds the module for the kernel that runs" installs
check "that loads and enables nothing" nothing_is_loaded
check "the module loads, and mthp_ext support ends with 0 and names it" loads
check "mthp_ext run attaches a policy and takes it back" runs
check "then the module can be unloaded" unloads
check "the service loads it and attaches its policy" serves
check "systemd has started all units" no_unit_failed
check "stopped, nothing is attached" stops
modprobe zram
rows
check "the module can be unloaded, and is not there any more" unloads
check "purged, nothing is left" is_purged
echo "1..$number"
