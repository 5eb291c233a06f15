#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The Debian package under dpkg and systemd, inside the guest of `make test-deb`: TAP on stdout.  Its caller powers the
# guest off.
. /lab/common.sh
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
thp=/sys/kernel/mm/transparent_hugepage
config=/etc/mthp_ext/config.toml
systemd=/etc/systemd/system
units=/usr/lib/systemd/system

settings() { grep -H . $thp/enabled $thp/defrag $thp/shmem_enabled $thp/hugepages-*/enabled $thp/khugepaged/max_ptes_none; }
version() { dpkg-query -W -f '${Version}' mthp-ext; }

# Whatever the kernel has of BPF links; the first descriptor that none has ends the list.
no_links() { [ -z "$(link)" ]; }

installs() {
	local before
	before=$(settings)
	dpkg -i /lab/old.deb || return 1
	version
	echo
	[ "$(systemctl is-enabled $unit)" = disabled ] && [ "$(property ActiveState)" = inactive ] && no_links &&
		[ "$(settings)" = "$before" ]
}

# Each file that documents it, where Debian has such files.
is_documented() {
	local file
	for file in man/man8/mthp_ext.8.gz man/man8/mthp_ext-run.8.gz bash-completion/completions/mthp_ext \
		zsh/site-functions/_mthp_ext fish/vendor_completions.d/mthp_ext.fish doc/mthp-ext/copyright \
		doc/mthp-ext/changelog.gz doc/mthp-ext/mthp_ext.cdx.json doc/mthp-ext/policies/default.toml \
		doc/mthp-ext/grafana/mthp_ext.json doc/mthp-ext/prometheus/mthp_ext.rules.yml doc/mthp-ext/docs/use.md; do
		dpkg-query -L mthp-ext | grep -qx "/usr/share/$file" || {
			echo "missing: $file"
			return 1
		}
	done
	# What is applied or run in place is not compressed.
	! dpkg-query -L mthp-ext | grep '\.gz$' | grep -v -e /man/ -e /changelog
}

starts() {
	systemctl enable --now $unit || return 1
	[ -n "$(link)" ] && narrows
}

narrows() { probe && [ "${narrowed:-0}" -gt 0 ] && [ "$huge" = 0 ]; }

# Fills 6 MiB in a new cgroup, again and again; of each the huge pages that it got on faults.
sampler() {
	local one=0 group
	while [ ! -e /run/sampler.stop ]; do
		one=$((one + 1))
		group=/sys/fs/cgroup/sample-$one
		mkdir $group
		/bin/bash -c "echo \$\$ >$group/cgroup.procs; exec dd if=/dev/zero of=/dev/null bs=6M count=1 status=none"
		sed -n 's/^thp_fault_alloc //p' $group/memory.stat
		rmdir $group
	done >/run/samples
}

configure() {
	sed -i 's/^#policy = "default"/policy = "default" # by hand/' $config
	mkdir -p /etc/mthp_ext/config.d
	printf '[[override]]\ncgroups = "system.slice/own.service"\npolicy = "off"\n' >/etc/mthp_ext/config.d/own.toml
	mthp_ext check-config && systemctl reload $unit
}

upgrades() {
	local pid before after with
	pid=$(property MainPID)
	before=$(link)
	rm -f /run/sampler.stop
	sampler &
	until_true 60 eval '[ "$(wc -l </run/samples)" -ge 3 ]'
	# As unattended-upgrades does it.
	dpkg --force-confdef --force-confold -i /lab/new.deb || return 1
	after=$(link)
	with=$(wc -l </run/samples)
	until_true 60 eval '[ "$(wc -l </run/samples)" -gt $(('"$with"' + 3)) ]'
	touch /run/sampler.stop
	wait
	echo "version $(version); link before $before, after $after; process before $pid, after $(property MainPID)"
	echo "programs that filled memory meanwhile, by huge pages that they got:"
	sort /run/samples | uniq -c
	[ -n "$before" ] && [ "$before" = "$after" ] && another_process "$pid" && [ "$(version)" != 0.0.9-1 ] &&
		[ "$(sort -u /run/samples)" = 0 ]
}

keeps_configuration() {
	ls -R /etc/mthp_ext
	grep -q 'policy = "default" # by hand' $config && [ -e $config.dpkg-dist ] && [ -e /etc/mthp_ext/config.d/own.toml ] &&
		[ "$(systemctl is-enabled $unit)" = enabled ] && mthp_ext config --show $config | grep -q own.service
}

# Without the policy the sampler sees huge pages: it can fail.
sampler_sees() {
	systemctl stop $unit
	rm -f /run/sampler.stop
	sampler &
	until_true 60 eval '[ "$(wc -l </run/samples)" -ge 3 ]'
	touch /run/sampler.stop
	wait
	sort /run/samples | uniq -c
	no_links && [ "$(sort -n /run/samples | head -n 1)" -gt 0 ]
}

# With a running service, a policy that was kept beside it, and settings that were applied.
removes() {
	local before
	before=$(settings)
	mthp_ext settings apply >/dev/null
	[ "$(settings)" != "$before" ] || return 1
	fill_etc || return 1
	keep_one
	systemctl start $unit || return 1
	[ "$(link | wc -l)" = 2 ] || return 1
	cp /usr/sbin/mthp_ext /run/mthp_ext_copy
	dpkg -r mthp-ext || return 1
	/run/mthp_ext_copy status
	echo "status of what is removed: $?"
	/run/mthp_ext_copy status | grep -q 'attached to' && return 1
	rm /run/mthp_ext_copy
	ls /sys/fs/bpf
	[ ! -e /sys/fs/bpf/mthp_ext ] && [ "$(property LoadState)" = not-found ] && [ "$(settings)" = "$before" ] &&
		[ -e $config ]
}

# What an administrator wrote, and what was made by the project: as the role of Ansible marks it.
fill_etc() {
	local role=/usr/share/doc/mthp-ext/ansible/roles/mthp_ext/tasks/present.yml place
	for place in $unit mthp_ext@.service mthp_ext@shop.service; do
		mkdir -p $systemd/$place.d
		{ sed -n 's/^ *\(# Made by mthp_ext.*\)/\1/p' $role && echo '[Service]'; } >$systemd/$place.d/ansible.conf
	done
	printf '[Service]\nNice=1\n' >$systemd/$unit.d/own.conf
	sed "s/^Description=.*/Description=own/" $units/mthp_ext@.service >$systemd/own@.service
	systemctl daemon-reload
	systemctl enable mthp_ext@shop own@shop
	grep -c 'Made by' $systemd/*mthp_ext*.d/ansible.conf && readlink $systemd/multi-user.target.wants/mthp_ext@shop.service
}

# Not: this script's own files, dpkg's record of what there was, and the journal.
purges() {
	local left kept
	dpkg -P mthp-ext || return 1
	left=$(find / -xdev \( -name '*mthp_ext*' -o -name '*mthp-ext*' \) -not -path '/proc/*' -not -path '/sys/*' | sort)
	echo "left: ${left:-nothing}"
	left+=$(find /run /sys/fs/bpf /sys/fs/cgroup -name '*mthp*')
	kept=$(find /etc/mthp_ext $systemd/$unit.d -type f | sort)
	echo "kept: $kept"
	[ "$left" = "/etc/mthp_ext"$'\n'"$systemd/$unit.d" ] &&
		[ "$kept" = "/etc/mthp_ext/config.d/own.toml"$'\n'"$systemd/$unit.d/own.conf" ] &&
		[ -L $systemd/multi-user.target.wants/own@shop.service ]
}

echo "TAP version 13"
systemctl --version | head -n 1
dpkg --version | head -n 1
check "installed it changes nothing: disabled, not running, nothing attached, settings as before" installs
check "manual, completion, dashboards, copyright and bill of materials are there" is_documented
check "enabled and started it narrows" starts
check "an own configuration is taken" configure
check "an upgrade goes on with the same link, and nobody gets a huge page meanwhile" upgrades
check "the own configuration and what is enabled stay" keeps_configuration
check "after a stop the same look sees huge pages" sampler_sees
check "removed it leaves nothing attached, pinned or set" removes
check "purged it leaves what the administrator wrote, and nothing else" purges
echo "1..$number"
