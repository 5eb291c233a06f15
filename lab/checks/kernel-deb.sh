#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# What a machine says that has booted the kernel's package from its disk, inside the guest of `make test-kernel-deb`: TAP
# on the port "output", records of Redis rows on the port "results". Its caller powers the guest off.
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

# The machine was started by UEFI, the kernel by GRUB from the file that the package brought.
by_own_loader() {
	cat /proc/cmdline
	[ -d /sys/firmware/efi ] && grep -q "^BOOT_IMAGE=/boot/vmlinuz-$release " /proc/cmdline &&
		dpkg-query -S "/boot/vmlinuz-$release" | grep -qx "linux-image-$release: .*"
}

# After it the first entry of the menu is this kernel, with the root that this one has.
menu_is_written() {
	update-grub || return 1
	grep -m 1 '^[[:space:]]*linux' /boot/grub/grub.cfg
	grep -m 1 '^[[:space:]]*linux' /boot/grub/grub.cfg | grep -q "/boot/vmlinuz-$release root=UUID="
}

by_that_menu() {
	cat /proc/cmdline
	! grep -q lab.menu=by-hand /proc/cmdline
}

no_unit_failed() {
	systemctl --no-pager --failed
	[ -z "$(systemctl --failed --no-legend)" ]
}

# Modules come from the package and are signed: one that is not taints the kernel.
modules_are_signed() {
	modprobe zram && modprobe vfat || return 1
	modinfo -F sig_id zram
	cat /proc/sys/kernel/tainted
	[ "$(modinfo -F sig_id zram)" = PKCS#7 ] && [ "$(cat /proc/sys/kernel/tainted)" = 0 ]
}

cell() {
	local file=$1 status
	echo '{"type": "cell"}' >&3
	mkfifo /run/records
	timeout 1200 cat /run/records >&3 &
	LAB_RESULTS=/run/records /lab/guest bench "$file"
	status=$?
	wait
	rm /run/records
	# As it was before: the next one sets all up anew.
	swapoff -a
	udevadm settle
	echo 1 >/sys/block/zram0/reset
	find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d -name redis -exec rmdir {} +
	return $status
}

first_boot() {
	check "the firmware has booted it through the disk's loader" by_own_loader
	check "update-grub writes a menu that boots it first" menu_is_written
}

second_boot() {
	check "the firmware has booted it through the disk's loader" by_own_loader
	check "the menu was the one that update-grub wrote" by_that_menu
	check "systemd has started all units" no_unit_failed
	check "its modules load, signed" modules_are_signed
	check "mthp_ext support ends with 0" mthp_ext support
	local file
	for file in /lab/cell-*.json; do
		check "a row of Redis: ${file##*/}" cell "$file"
	done
}

output=$(port output) && results=$(port results) || exit 1
exec >"$output" 2>&1 3>"$results"
if grep -q lab.menu=by-hand /proc/cmdline; then first_boot; else second_boot; fi
echo "1..$number"
