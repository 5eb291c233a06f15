#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The image under containerd, with the rights of the DaemonSet, beside containers in cgroups as kubelet names them, inside
# the guest of `make test-kubernetes`: TAP on stdout.  Its caller powers the guest off.  kubelet itself is not there.
. /lab/common.sh
unit=containerd.service
uid=$(cat /lab/uid)
systemd_pod=kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod${uid//-/_}.slice
other_pod=${systemd_pod/7f3c1b2a/0f3c1b2a}
cgroupfs_pod=kubepods/burstable/pod$uid
agents_slice=kubepods-burstable-pod0a1b2c3d_4e5f_4a6b_8c7d_8e9f0a1b2c3d.slice
log=/run/agent.log

ctr() { /usr/bin/ctr --namespace k8s.io "$@"; }

# pid_of CONTAINER: its first process.
pid_of() { ctr tasks ls | sed -n "s/^$1 *\([0-9]*\).*/\1/p"; }

containerd_runs() {
	mkdir -p /var/lib/containerd /etc/containerd
	systemctl start $unit && until_true 60 ctr version
}

imports() {
	ctr images import --snapshotter native /lab/image.tar --base-name mthp-ext || return 1
	image=$(ctr images ls -q | head -n 1)
	echo "image: $image"
	[ "${image##*:}" = "$(cat /lab/tag)" ]
}

# hands_on NAME [DROP-IN]: the configuration as kubelet hands a projected volume on, all of it at once.
hands_on() {
	mkdir -p "/run/agent/etc/..$1/config.d"
	cp /lab/config.toml "/run/agent/etc/..$1"
	[ $# = 1 ] || cp "$2" "/run/agent/etc/..$1/config.d"
	ln -s "..$1" /run/agent/etc/..new
	mv -T /run/agent/etc/..new /run/agent/etc/..data
}

# What containerd would give besides is dropped, as the manifest says ALL.
agent() {
	local drop=() add=() name
	for name in CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT \
		KILL AUDIT_WRITE; do
		drop+=(--cap-drop "CAP_$name")
	done
	while read -r name; do add+=(--cap-add "$name"); done </lab/capabilities
	mkdir -p /run/agent/etc /run/agent/run
	ln -s ..data/config.toml ..data/config.d /run/agent/etc
	hands_on first
	: >$log
	mapfile -t words </lab/arguments
	# No --no-pivot, with which ctr forgets --runc-systemd-cgroup.
	ctr run --snapshotter native --read-only --seccomp "${drop[@]}" "${add[@]}" --memory-limit "$(cat /lab/memory)" \
		--mount type=bind,src=/sys/fs/cgroup,dst=/sys/fs/cgroup,options=rbind:rw \
		--mount type=bind,src=/run/agent/etc,dst=/etc/mthp_ext,options=rbind:ro \
		--mount type=bind,src=/run/agent/run,dst=/run/mthp_ext,options=rbind:rw \
		--runc-systemd-cgroup --cgroup "$agents_slice:cri-containerd:agent" \
		"$image" agent /usr/sbin/mthp_ext "${words[@]}" </dev/null >$log 2>&1 &
	until_true 120 grep -q 'configuration /etc/mthp_ext/config.toml in force' $log
	cat $log
	# For the questions that are asked on the node.
	install -D "/proc/$(pid_of agent)/root/usr/sbin/mthp_ext" /usr/local/sbin/mthp_ext || return 1
	mthp_ext status
	grep -q 'attached to / ' $log && grep -q 'in force' $log && [ -n "$(link)" ] &&
		grep -q "/$agents_slice/cri-containerd-agent.scope" "/proc/$(pid_of agent)/cgroup" &&
		[ "$(cat "/sys/fs/cgroup$(cut -d: -f3 "/proc/$(pid_of agent)/cgroup")/memory.max")" = "$(cat /lab/memory)" ]
}

has_no_more() {
	local pid
	pid=$(pid_of agent)
	grep -E '^(Cap|NoNewPrivs|Seccomp:)' "/proc/$pid/status"
	# CAP_SYS_RESOURCE, CAP_PERFMON, CAP_BPF
	grep -q '^CapBnd:.*000000c001000000$' "/proc/$pid/status" && grep -q '^NoNewPrivs:.*1$' "/proc/$pid/status" &&
		grep -q '^Seccomp:.*2$' "/proc/$pid/status" && ! (echo >"/proc/$pid/root/x") 2>/dev/null
}

# As kubelet runs it, in the container.
probe() {
	mapfile -t words </lab/probe
	ctr tasks exec --exec-id "probe-$SECONDS" agent "${words[@]}" </dev/null
}

# The network namespace is the container's own.  Nobody but the pod reaches its 127.0.0.1.
serves_metrics() {
	local net
	net=--net=/proc/$(pid_of agent)/ns/net
	nsenter "$net" /lab/pod/bin/busybox ip address add 192.0.2.1/32 dev lo || return 1
	nsenter "$net" curl -fsS http://192.0.2.1:9464/metrics | grep '^mthp_ext_build_info'
}

# pod NAME CGROUP [OPTION]: a container that fills 6 MiB and waits.
pod() {
	local name=$1 cgroup=$2
	shift 2
	ctr run --detach --rootfs "$@" --cgroup "$cgroup" /lab/pod "$name" /bin/busybox sh -c \
		'/bin/busybox dd if=/dev/zero bs=6M count=1 2>/dev/null | /bin/busybox sleep 600' </dev/null >/dev/null
}

by_class() {
	pod one "$(basename $systemd_pod):cri-containerd:one" --runc-systemd-cgroup || return 1
	pod two "/$cgroupfs_pod/two" || return 1
	find /sys/fs/cgroup/kubepods* -type d
	[ -d "/sys/fs/cgroup/$systemd_pod/cri-containerd-one.scope" ] && [ -d "/sys/fs/cgroup/$cgroupfs_pod/two" ] || return 1
	until_true 60 grep -q 'cri-containerd-one.scope' $log && until_true 60 grep -q "$cgroupfs_pod/two" $log
	mthp_ext status
	mthp_ext explain "/$systemd_pod/cri-containerd-one.scope" | grep 'small-services' &&
		mthp_ext explain "/$cgroupfs_pod/two" | grep 'policy default'
}

# of CGROUP NAME: a figure of its memory.stat.
of() { sed -n "s/^$2 //p" "/sys/fs/cgroup/$1/memory.stat"; }

is_full() { [ -d "/sys/fs/cgroup/$1" ] && [ "$(of "$1" anon)" -gt $((4 << 20)) ]; }

stopped() { ctr tasks ls | grep -q "^$1 .*STOPPED"; }

# The pod stays, its container is another one: there is no moment without the pod's policy.
again() {
	ctr tasks kill --signal SIGKILL one && until_true 20 stopped one && ctr tasks delete one
	ctr containers delete one
	pod three "$(basename $systemd_pod):cri-containerd:three" --runc-systemd-cgroup || return 1
	until_true 30 is_full "$systemd_pod/cri-containerd-three.scope" || return 1
	mthp_ext explain "/$systemd_pod/cri-containerd-three.scope" | tee /run/three | grep 'small-services' || return 1
	# Of no pod: no policy, or none at all would show the same.
	pod free /other/free || return 1
	until_true 30 is_full other/free || return 1
	local huge free
	huge=$(of "$systemd_pod/cri-containerd-three.scope" thp_fault_alloc)
	free=$(of other/free thp_fault_alloc)
	echo "huge pages: $huge; of no pod: $free"
	[ "$huge" = 0 ] && [ "$free" -gt 0 ]
}

has_asked() {
	cat /lab/pods.toml
	hands_on second /lab/pods.toml
	probe || return 1
	# Another pod has not asked.
	pod four "$(basename "$other_pod"):cri-containerd:four" --runc-systemd-cgroup || return 1
	until_true 30 is_full "$other_pod/cri-containerd-four.scope" || return 1
	mthp_ext explain "/$systemd_pod/cri-containerd-three.scope" | grep 'policy database' &&
		mthp_ext explain "/$cgroupfs_pod/two" | grep 'policy database' &&
		mthp_ext explain "/$other_pod/cri-containerd-four.scope" | grep 'small-services'
}

# set_of_pod WORDS: in the agent's container, as `kubectl exec` would, for the pod by the name of its slice.
set_of_pod() {
	ctr tasks exec --exec-id "set-$SECONDS-$1" agent /usr/sbin/mthp_ext "$1" --cgroup "$(basename $systemd_pod)" "${@:2}" </dev/null
}

explained() { mthp_ext explain "/$systemd_pod/cri-containerd-three.scope"; }

set_at_once() {
	set_of_pod set policy=small-services || return 1
	explained | grep 'by policy small-services (user.mthp_ext)' || return 1
	set_of_pod unset || return 1
	explained | grep 'policy database'
}

ends() {
	ctr tasks kill --signal SIGTERM agent
	until_true 30 grep -q 'detached from /' $log
	tail -n 2 $log
	mthp_ext status
	mthp_ext status | grep -q '^no policy is attached'
}

echo "TAP version 13"
check "containerd starts" containerd_runs
check "containerd imports the archive" imports
check "the rights of the DaemonSet are enough" agent
check "it has no others" has_no_more
check "the command of its startup probe answers" probe
check "it serves metrics" serves_metrics
check "containers in kubelet's cgroups, of both drivers, have the policy of their class" by_class
check "a pod whose container restarts has its policy at once" again
check "a pod that asks for a policy by a label has it after a reload" has_asked
check "the agent's container sets the policy of one pod, at once, and takes it back" set_at_once
check "a SIGTERM leaves nothing attached" ends
echo "1..$number"
