#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The image under containerd, with the rights of the DaemonSet, beside containers in cgroups as kubelet names them, inside
# the guest of `make test-kubernetes`: TAP on stdout.  Its caller powers the guest off.  kubelet itself is not there.
. /lab/common.sh
unit=containerd.service
uid=7f3c1b2a_9d4e_4c5f_8a6b_0c1d2e3f4a5b
systemd_pod=kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod$uid.slice
cgroupfs_pod=kubepods/burstable/pod${uid//_/-}
log=/run/agent.log

ctr() { /usr/bin/ctr --namespace k8s.io "$@"; }

containerd_runs() {
	mkdir -p /var/lib/containerd /etc/containerd
	systemctl start $unit && until_true 60 ctr version
}

imports() {
	ctr images import --snapshotter native /lab/image.tar --base-name mthp-ext || return 1
	image=$(ctr images ls -q | head -n 1)
	echo "image: $image"
	[ -n "$image" ]
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
	cp /lab/config.toml /run/agent/etc
	mapfile -t words </lab/arguments
	# The root of the guest is an initramfs, which nobody can pivot.
	ctr run --no-pivot --snapshotter native --read-only --seccomp "${drop[@]}" "${add[@]}" --memory-limit "$(cat /lab/memory)" \
		--mount type=bind,src=/sys/fs/cgroup,dst=/sys/fs/cgroup,options=rbind:rw \
		--mount type=bind,src=/run/agent/etc,dst=/etc/mthp_ext,options=rbind:ro \
		--mount type=bind,src=/run/agent/run,dst=/run/mthp_ext,options=rbind:rw \
		--runc-systemd-cgroup --cgroup "kubepods-besteffort.slice:cri-containerd:agent" \
		"$image" agent /usr/sbin/mthp_ext "${words[@]}" </dev/null >$log 2>&1 &
	until_true 120 grep -q 'configuration /etc/mthp_ext/config.toml in force' $log
	cat $log
	grep -q 'attached to / ' $log && grep -q 'in force' $log
}

has_no_more() {
	local pid
	pid=$(ctr tasks ls | sed -n 's/^agent *\([0-9]*\).*/\1/p')
	grep -E '^(Cap|NoNewPrivs|Seccomp:)' "/proc/$pid/status"
	# CAP_SYS_RESOURCE, CAP_PERFMON, CAP_BPF
	grep -q '^CapBnd:.*000000c001000000$' "/proc/$pid/status" && grep -q '^NoNewPrivs:.*1$' "/proc/$pid/status" &&
		grep -q '^Seccomp:.*2$' "/proc/$pid/status" && ! (echo >"/proc/$pid/root/x") 2>/dev/null
}

# pod NAME CGROUP [OPTION]: a container that fills 6 MiB and waits.
pod() {
	local name=$1 cgroup=$2
	shift 2
	ctr run --detach --no-pivot --rootfs "$@" --cgroup "$cgroup" /lab/pod "$name" /bin/busybox sh -c \
		'/bin/busybox dd if=/dev/zero bs=6M count=1 2>/dev/null | /bin/busybox sleep 600' </dev/null >/dev/null
}

by_class() {
	pod one "$(basename $systemd_pod):cri-containerd:one" --runc-systemd-cgroup || return 1
	pod two "/$cgroupfs_pod/two" || return 1
	find /sys/fs/cgroup/kubepods* -type d
	[ -d "/sys/fs/cgroup/$systemd_pod/cri-containerd-one.scope" ] && [ -d "/sys/fs/cgroup/$cgroupfs_pod/two" ] || return 1
	until_true 60 grep -q 'cri-containerd-one.scope' $log && until_true 60 grep -q "$cgroupfs_pod/two" $log
	cp "$(find /run/containerd -path '*agent/rootfs/usr/sbin/mthp_ext' | head -n 1)" /usr/local/sbin/mthp_ext
	mthp_ext status
	mthp_ext explain "/$systemd_pod/cri-containerd-one.scope" | grep 'small-services' &&
		mthp_ext explain "/$cgroupfs_pod/two" | grep 'policy default'
}

# The pod stays, its container is another one: there is no moment without the pod's policy.
again() {
	ctr tasks kill --signal SIGKILL one && until_true 20 eval 'ctr tasks ls | grep -q "^one.*STOPPED"' && ctr tasks delete one
	ctr containers delete one
	pod three "$(basename $systemd_pod):cri-containerd:three" --runc-systemd-cgroup || return 1
	until_true 30 eval "[ \"\$(sed -n 's/^anon //p' /sys/fs/cgroup/$systemd_pod/cri-containerd-three.scope/memory.stat)\" -gt $((4 << 20)) ]"
	mthp_ext explain "/$systemd_pod/cri-containerd-three.scope" | tee /run/three | grep 'small-services' || return 1
	local huge
	huge=$(sed -n 's/^thp_fault_alloc //p' /sys/fs/cgroup/$systemd_pod/cri-containerd-three.scope/memory.stat)
	echo "huge pages: $huge"
	[ "$huge" = 0 ]
}

ends() {
	ctr tasks kill --signal SIGTERM agent
	until_true 30 grep -q 'detached from /' $log
	tail -n 2 $log
	[ -z "$(link)" ]
}

echo "TAP version 13"
check "containerd starts" containerd_runs
check "containerd imports the archive" imports
check "the rights of the DaemonSet are enough" agent
check "it has no others" has_no_more
check "containers in kubelet's cgroups, of both drivers, have the policy of their class" by_class
check "a pod whose container restarts has its policy at once" again
check "a SIGTERM leaves nothing attached" ends
echo "1..$number"
