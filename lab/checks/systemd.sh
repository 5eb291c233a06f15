#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The unit under systemd, inside the guest of `make test-systemd`: TAP on stdout.  Its caller powers the guest off.
. /lab/common.sh

# Drops all drop-ins, or writes one, and starts as if for the first time.
fresh() {
	systemctl stop $unit
	rm -rf $dropin
	if [ $# -gt 0 ]; then
		mkdir -p $dropin
		printf '%s\n' '[Service]' "$@" >$dropin/test.conf
	fi
	systemctl daemon-reload
	systemctl reset-failed $unit 2>/dev/null
	return 0
}

starts_in_force() {
	systemctl start $unit || return 1
	# No waiting: that the command ended must mean that the policy is there.
	local said
	said=$(mthp_ext status)
	echo "$said"
	[[ $said == *"attached to / "* ]]
}

status_text() {
	local text
	text=$(property StatusText)
	echo "StatusText: $text"
	[[ $text == *"attached to /"*link* ]] && systemctl status --no-pager $unit | grep -q 'Status: ".*attached'
}

narrows() { probe && [ "${narrowed:-0}" -gt 0 ] && [ "$huge" = 0 ]; }
free_again() { probe && [ -z "$narrowed" ] && [ "$huge" -gt 0 ]; }

sandboxed() {
	local pid
	pid=$(property MainPID)
	grep -E '^(CapBnd|CapEff|NoNewPrivs|Seccomp):' /proc/"$pid"/status
	cat /proc/"$pid"/cgroup /proc/"$pid"/oom_score_adj
	grep -q '^Seccomp:.*2$' /proc/"$pid"/status && grep -q '^CapBnd:.*000000c001000000$' /proc/"$pid"/status && [ "$(cat /proc/"$pid"/oom_score_adj)" = -900 ] &&
		grep -qx '0::/mthp_ext.service' /proc/"$pid"/cgroup
}

restarted_after() {
	local pid
	pid=$(property MainPID)
	kill "-$1" "$pid"
	until_true "$2" another_process "$pid" && [ -n "$(link)" ] && echo "Result: $(property Result), restarts: $(property NRestarts)"
}

# configure POLICY: of the cgroup of this script.
configure() {
	mkdir -p /etc/mthp_ext
	printf '%s\n' 'policy = "default"' '[[override]]' 'cgroups = "system.slice/lab-*"' "policy = \"$1\"" >/etc/mthp_ext/config.toml
}

# Whether the status has it that all is allowed here.
all_here() { mthp_ext status | grep -E '^/system.slice/lab-checks.service +all .*by policy off'; }

reload_good() {
	local pid
	configure default
	fresh
	systemctl start $unit || return 1
	pid=$(property MainPID)
	all_here && return 1
	configure off
	systemctl reload $unit && until_true 20 all_here && [ "$(property MainPID)" = "$pid" ]
}

reload_bad() {
	local pid
	pid=$(property MainPID)
	# Of a daemon that has read a good one.
	echo 'no such = [' >/etc/mthp_ext/config.toml
	systemctl reload $unit && return 1
	[ "$(property MainPID)" = "$pid" ] && [ "$(property ActiveState)" = active ] && all_here
}

reload_without() {
	rm -f /etc/mthp_ext/config.toml
	systemctl reload $unit
	echo "systemctl reload without a configuration: exit $?"
	[ "$(property ActiveState)" = active ] && [ -n "$(link)" ]
}

# A unit says for itself that nothing is narrowed for it.
unit_says_off() {
	mkdir -p /run/systemd/system/probe.service.d
	printf '%s\n' '[Service]' 'ExecStartPre=-+mthp_ext set off' >/run/systemd/system/probe.service.d/own.conf
	probe
	rm -r /run/systemd/system/probe.service.d
	journalctl -b -u probe.service --no-pager | grep user.mthp_ext
	[ -z "$narrowed" ] && [ "$huge" -gt 0 ]
}

# A service does not depend on its override: a wrong one, or a program that has gone, lets it start.
refused_starts() {
	local said started=0
	narrowed=
	mkdir -p /run/systemd/system/probe.service.d
	printf '%s\n' '[Service]' 'ExecStartPre=-+mthp_ext set policy=no-such' \
		'ExecStartPre=-+/usr/local/sbin/no-such-program set off' >/run/systemd/system/probe.service.d/own.conf
	probe || started=$?
	rm -r /run/systemd/system/probe.service.d
	said=$(journalctl -b -u probe.service --no-pager)
	grep no-such <<<"$said"
	# Both were tried, it ran all the same, and under the policy of the root.
	[[ $said == *"'no-such'"* && $said == *no-such-program* ]] && [ $started = 0 ] && [ "${narrowed:-0}" -gt 0 ]
}

stops() {
	systemctl stop $unit || return 1
	mthp_ext status
	# Of this stop: each of those before it is further up.
	journalctl --sync
	journalctl -b -u $unit --no-pager -n 6 | grep -F 'is with the service manager (SIGTERM): a restart goes on with it, a stop ends it' ||
		return 1
	[ -z "$(link)" ] && [ "$(property ActiveState)" = inactive ] && [ "$(property Result)" = success ]
}

run='ExecStart=/usr/local/sbin/mthp_ext run'
enabled=/sys/kernel/mm/transparent_hugepage/enabled
defrag=/sys/kernel/mm/transparent_hugepage/defrag

watchdog() {
	fresh WatchdogSec=6s || return 1
	systemctl start $unit && restarted_after STOP 90 && journalctl -b -u $unit --no-pager | grep -i watchdog
}

hands_over() {
	fresh
	systemctl start $unit || return 1
	local before pid
	before=$(link)
	pid=$(property MainPID)
	echo "link $before, descriptors that systemd holds: $(property NFileDescriptorStore)"
	# On a kernel without kcmp(2), as this one, it takes all of BPF's descriptors for the same, and holds the first.
	[ -n "$before" ] && [ "$(property NFileDescriptorStore)" -ge 1 ] || return 1
	systemctl restart $unit || return 1
	echo "link before: $before, after: $(link)"
	[ "$(link)" = "$before" ] && another_process "$pid" || return 1
	# It holds them, whether it says so (254) or not.
	journalctl -b -u $unit --no-pager | grep 'holds nothing' && return 1
	restarted_after KILL 60 && [ "$(link)" = "$before" ] && [ "$(property NFileDescriptorStore)" -ge 1 ]
}

stop_after_handing_over() {
	systemctl stop $unit
	[ "$(property NFileDescriptorStore)" = 0 ] && [ -z "$(link)" ]
}

# An instance covers its slice, beside the unit of the whole system, and both may run at once.  Each is reloaded alone.
covers_a_slice() {
	systemctl start mthp_ext@data || return 1
	mthp_ext status | grep -F 'attached to /data.slice (' || return 1
	configure default
	systemctl start $unit || return 1
	all_here && return 1
	configure off
	systemctl reload $unit && until_true 20 all_here || return 1
	# That one was started without a configuration.
	systemctl reload mthp_ext@data && return 1
	rm -f /etc/mthp_ext/config.toml
	[ "$(link | wc -l)" = 2 ] || return 1
	systemctl stop $unit mthp_ext@data
	[ -z "$(link)" ]
}

keeps() {
	fresh ExecStart= "$run --on-exit keep"
	systemctl start $unit || return 1
	local before after
	before=$(link)
	systemctl restart $unit || return 1
	after=$(link)
	echo "link before: $before, after: $after"
	[ -n "$before" ] && [ "$before" = "$after" ] || return 1
	restarted_after KILL 60 || return 1
	[ "$(link)" = "$before" ] || return 1
	systemctl stop $unit
	[ "$(link)" = "$before" ] || return 1
	mthp_ext detach && [ -z "$(link)" ]
}

# What multi-user.target would start.
enabled_units() { ls -d /{etc,run}/systemd/system/*.wants/mthp_ext*.service 2>/dev/null; }

# The line of docs/fleet.md as it stands there: the unit, an instance and a policy that was kept end, each of its commands
# succeeds, and a boot starts none of them.
out_in_one_command() {
	cat /lab/out.sh
	[ -s /lab/out.sh ] || return 1
	fresh
	systemctl enable $unit mthp_ext@data && systemctl start $unit mthp_ext@data || return 1
	keep_one
	mthp_ext status
	enabled_units
	[ "$(link | wc -l)" = 3 ] && [ "$(enabled_units | wc -l)" = 2 ] || return 1
	bash -e /lab/out.sh || return 1
	mthp_ext status
	[ -z "$(link)" ] && [ -z "$(enabled_units)" ] && [ "$(property ActiveState)" = inactive ] &&
		[ "$(systemctl is-active mthp_ext@data)" = inactive ] && [ ! -e /sys/fs/bpf/mthp_ext ] && rmdir /sys/fs/cgroup/kept
}

metrics() {
	fresh ExecStart= "$run --metrics unix:/run/mthp_ext/metrics.sock"
	systemctl start $unit || return 1
	ls -l /run/mthp_ext
	curl -s --unix-socket /run/mthp_ext/metrics.sock http://localhost/metrics | head -n 5
	curl -s --unix-socket /run/mthp_ext/metrics.sock http://localhost/metrics | grep -q '^mthp_ext_'
}

# The drop-in for metrics of docs/first-day.md.
metrics_on_a_port() {
	fresh PrivateNetwork=no 'RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6' IPAddressDeny= \
		ExecStart= "$run --metrics 127.0.0.1:9876"
	systemctl start $unit || return 1
	curl -s http://127.0.0.1:9876/metrics | grep -c '^mthp_ext_'
}

# The drop-in of docs/first-day.md.
applies='ExecStartPost=-+mthp_ext settings apply'
# Of docs/operations.md.
brake="ExecStopPost=+/bin/sh -c '[ \"\$\$SERVICE_RESULT\" = success ] || echo never > $enabled'"

# As the guest has booted, but for a setting that differs.
settings_as_booted() {
	systemctl stop $unit
	mthp_ext settings undo >/dev/null
	echo always >$enabled
	echo "${1:-madvise}" >$defrag
}

settings_follow() {
	fresh "$applies"
	settings_as_booted always
	mthp_ext settings show >/dev/null && return 1
	systemctl start $unit || return 1
	# No waiting, as for the policy.
	mthp_ext settings show && mthp_ext settings undo && grep -F '[always]' $defrag
}

# What somebody has written stays over restarts, until he says otherwise.
by_hand_stays() {
	fresh "$applies"
	settings_as_booted
	systemctl start $unit && grep -F '[always]' $enabled || return 1
	echo never >$enabled
	systemctl restart $unit || return 1
	journalctl --sync
	grep -F '[never]' $enabled && journalctl -b -u $unit --no-pager | grep -F '1 left as it is' || return 1
	restarted_after KILL 60 && grep -F '[never]' $enabled || return 1
	mthp_ext settings undo && grep -F '[never]' $enabled && systemctl restart $unit && grep -F '[always]' $enabled
}

# Tries to, with a configuration that is none.
cannot_start() {
	local started=1
	mkdir -p /etc/mthp_ext
	echo 'no such = [' >/etc/mthp_ext/config.toml
	systemctl start $unit || started=0
	rm -f /etc/mthp_ext/config.toml
	[ $started = 0 ]
}

# A host without a policy does not get its settings.
nothing_is_set_without_a_policy() {
	fresh "$applies"
	settings_as_booted always
	cannot_start || return 1
	echo "status $(property ExecMainStatus), $(property ActiveState)"
	[ "$(property ExecMainStatus)" = 2 ] && grep -F '[always]' $defrag && [ ! -e /run/mthp_ext-settings/saved.json ]
}

# The packages of this guest bring no /bin/sh.
with_a_shell() { [ -e /bin/sh ] || ln -s bash /bin/sh; }

has_failed() { [ "$(property ActiveState)" = failed ]; }

# Beside the brake: never stands where the policy has failed, and after the next start.
brake_holds() {
	with_a_shell
	fresh Restart=no "$brake" "$applies"
	settings_as_booted
	systemctl start $unit && grep -F '[always]' $enabled || return 1
	kill -KILL "$(property MainPID)"
	until_true 30 grep -F '[never]' $enabled || return 1
	until_true 30 has_failed && systemctl start $unit && [ -n "$(link)" ] && grep -F '[never]' $enabled || return 1
	# What cannot start at all applies nothing, either.
	settings_as_booted always
	cannot_start && until_true 30 grep -F '[never]' $enabled && grep -F '[always]' $defrag
}

fails_safe() {
	with_a_shell
	fresh Restart=no "$brake"
	local failed
	systemctl start $unit && systemctl stop $unit && grep -F '[always]' $enabled &&
		systemctl start $unit && kill -KILL "$(property MainPID)" && until_true 30 grep -F '[never]' $enabled
	failed=$?
	echo always >$enabled
	return $failed
}

usage_error() {
	fresh ExecStart= "$run --no-such-option"
	systemctl start $unit && return 1
	sleep 3
	echo "status $(property ExecMainStatus), restarts $(property NRestarts), $(property ActiveState)"
	[ "$(property ExecMainStatus)" = 2 ] && [ "$(property NRestarts)" = 0 ] && [ "$(property ActiveState)" = failed ]
}

echo "TAP version 13"
systemctl --version | head -n 1
check "start ends when the policy is in force" starts_in_force
check "the status text names the policy" status_text
check "capabilities, filters, cgroup and OOM score are the unit's" sandboxed
check "the policy narrows" narrows
check "kill -9 is followed by a restart" restarted_after KILL 60
check "a reload of a good configuration keeps the process" reload_good
check "a unit's drop-in takes the policy away from it" unit_says_off
check "a unit whose override is refused starts all the same" refused_starts
check "a reload of a bad configuration fails and changes nothing" reload_bad
check "a reload without a configuration changes nothing" reload_without
check "stop leaves nothing attached" stops
check "then the kernel is as free as before" free_again
check "a stopped process is ended by the watchdog and restarted" watchdog
check "a restart and kill -9 go on with the same link" hands_over
check "a stop after that ends it" stop_after_handing_over
check "an instance for a slice covers that slice" covers_a_slice
check "--on-exit keep keeps the link over restarts" keeps
check "the one command of the fleet's page ends the unit, an instance and what was kept" out_in_one_command
check "the socket of --metrics answers" metrics
check "so does a port" metrics_on_a_port
check "a drop-in applies the settings once the policy is in force" settings_follow
check "what is written by hand stays over a restart" by_hand_stays
check "where the policy does not start no setting is applied" nothing_is_set_without_a_policy
settings_as_booted
check "never stays where the policy has failed, beside a drop-in that applies" brake_holds
settings_as_booted
check "a drop-in writes never where the policy fails, not where it is stopped" fails_safe
check "a usage error is not restarted" usage_error
fresh
echo "1..$number"
