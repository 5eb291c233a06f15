#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# What a machine says that has booted the kernel's package from its disk, in `make test-kernel-deb`.
. /lab/common.sh

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

# Modules come from the package and are signed: one that is not taints the kernel.
modules_are_signed() {
	modprobe zram && modprobe vfat || return 1
	modinfo -F sig_id zram
	cat /proc/sys/kernel/tainted
	[ "$(modinfo -F sig_id zram)" = PKCS#7 ] && [ "$(cat /proc/sys/kernel/tainted)" = 0 ]
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
	rows
}

if grep -q lab.menu=by-hand /proc/cmdline; then first_boot; else second_boot; fi
echo "1..$number"
