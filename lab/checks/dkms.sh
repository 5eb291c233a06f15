#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The package of the module under apt and DKMS, in a root of Debian 13 of its own: TAP on stdout.
# dkms.sh FIRST SECOND: releases of kernels. Leaves the modules of both in /lab, uncompressed.
set -u
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
first=$1 second=$2
number=0

# check NAME COMMAND...: what the command says comes before its line.
check() {
	local name=$1 status
	shift
	touch /lab/begun
	"$@"
	status=$?
	number=$((number + 1))
	if [ $status != 0 ]; then
		find /var/lib/dkms/mthp-hook -name make.log -newer /lab/begun -exec tail -n 20 {} +
		echo -n "not "
	fi
	echo "ok $number - $name"
}

installs() { apt-get install -y -q --no-install-recommends "$@"; }

module() { find "/lib/modules/$1/updates" -name 'mthp_hook.ko*' 2>/dev/null; }

# has RELEASE: its module is there, once, and for this very kernel.
has() {
	local file
	file=$(module "$1")
	echo "$1: ${file:-no module}"
	[ -n "$file" ] && [ "$(modinfo -F vermagic "$file" | cut -d ' ' -f 1)" = "$1" ]
}

built_at_once() {
	installs "linux-headers-$first" && installs /lab/old.deb && has "$first"
}

# It is the administrator, or the unit, that loads it.
loads_nothing() {
	local scripts=/var/lib/dpkg/info/mthp-ext-dkms
	ls $scripts.* && ! grep -n -e modprobe -e insmod $scripts.p*
}

# The module says which build it is of, and the service may read its types.
tells_its_build() {
	local version unit
	version=$(dpkg-query -W -f '${Version}' mthp-ext-dkms)
	modinfo -F version "$(module "$first")"
	[ "$(modinfo -F version "$(module "$first")")" = "${version%-*}" ] || return 1
	for unit in mthp_ext mthp_ext@; do
		grep CAP_SYS_ADMIN "/usr/lib/systemd/system/$unit.service.d/mthp-hook.conf" || return 1
	done
}

built_for_a_second() { installs "linux-headers-$second" && has "$second" && has "$first"; }

# for_kernel RELEASE COMMAND...: what a kernel's package runs, for one whose headers are those of the first, made by the
# command into what they are to be; then the module that it has.
for_kernel() {
	local release=$1 headers=/usr/src/linux-headers-$1 place=/lib/modules/$1 status
	shift
	mkdir -p "$place"
	# Beside the first one's: they lead to others by relative links.
	cp -r "/usr/src/linux-headers-$first" "$headers"
	ln -s "$headers" "$place/build"
	(cd "$headers" && "$@") && dkms autoinstall -k "$release" >&2
	status=$?
	module "$release"
	/etc/kernel/prerm.d/dkms "$release" >&2
	rm -r "$place" "$headers"
	return $status
}

# Nothing is built, and nothing fails.
is_left_out() {
	local made
	made=$(for_kernel "$@") && [ -z "$made" ]
}

with_series() { echo CONFIG_BPF_TRANSPARENT_HUGEPAGE=y >>include/config/auto.conf; }

without_ftrace() { sed -i '/^CONFIG_DYNAMIC_FTRACE_WITH_ARGS=/d' include/config/auto.conf; }

# As they are, for a kernel that it can be for, these headers do: it is not for something else that the others are left
# out.
left_out() {
	[ -n "$(for_kernel 7.3.4-good true)" ] || return 1
	is_left_out 6.1.0-0-amd64 true && is_left_out 7.4.0-amd64 true && is_left_out 7.3.4-mthp with_series &&
		is_left_out 7.3.4-own rm vmlinux && is_left_out 7.3.4-plain without_ftrace
}

upgrades() {
	local before after
	before=$(dkms status)
	installs /lab/new.deb || return 1
	after=$(dkms status)
	printf 'before: %s\nafter: %s\n' "$before" "$after"
	[ "$(wc -l <<<"$after")" = 2 ] && ! grep -q 0.0.9 <<<"$after" && [ "$(grep -c installed <<<"$after")" = 2 ] &&
		[ "$(ls -d /usr/src/mthp-hook-* | wc -l)" = 1 ] && has "$first" && has "$second"
}

# With the key that an administrator enrolls for secure boot.
signed() {
	local release
	for release in $first $second; do
		modinfo -F signer "$(module "$release")" | grep . || return 1
	done
	ls /var/lib/dkms/mok.pub
}

taken_along() {
	local release file
	for release in $first $second; do
		file=$(module "$release")
		cp "$file" "/lab/$release.${file##*/mthp_hook.}" || return 1
		case $file in *.xz) unxz "/lab/$release.ko.xz" ;; *.zst) unzstd -q --rm "/lab/$release.ko.zst" ;; esac
	done
	ls -l /lab/*.ko
}

# What the package of a kernel's image runs when it goes.
goes_with_its_kernel() {
	/etc/kernel/prerm.d/dkms "$second" || return 1
	dkms status
	[ -z "$(module "$second")" ] && has "$first"
}

removed() {
	apt-get remove -y -q mthp-ext-dkms || return 1
	[ -z "$(module "$first")" ] && [ -z "$(dkms status)" ]
}

# Installed once more, as nothing is left of one that was removed.
purged() {
	local left
	installs /lab/new.deb && has "$first" && apt-get purge -y -q mthp-ext-dkms || return 1
	left=$(find / -xdev -iname '*mthp[-_]*' -not -path '/lab/*' -not -path '/proc/*' -not -path '/var/cache/apt/*')
	echo "left: ${left:-nothing}"
	[ -z "$left" ]
}

echo "TAP version 13"
apt-get update -q
dpkg-query -W dkms 2>/dev/null
check "installed, the module is built for the kernel whose headers are there" built_at_once
check "its scripts load nothing" loads_nothing
check "the module tells its build, and the service may read its types" tells_its_build
check "with the headers of a second kernel it is built for that one" built_for_a_second
check "a kernel that it cannot be for is left out, and nothing fails" left_out
check "an upgrade builds the new version for both and takes the old one away" upgrades
check "it is signed with DKMS's key" signed
check "(the modules are kept for the guests)" taken_along
check "a kernel that goes takes its module along" goes_with_its_kernel
check "removed it leaves no module" removed
check "purged it leaves nothing" purged
echo "1..$number"
