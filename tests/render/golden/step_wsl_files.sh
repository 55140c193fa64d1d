# Puts files of Windows, and wsl.conf, in place: each is written beside its place and renamed, so that no reader sees half
# a file. Owners and modes are Windows' on its disks.
umask 022
mkdir -p /etc && path=$(readlink -f /etc/wsl.conf) || exit 1
# What somebody has written since it was read is not lost.
if [ "$(sha256sum 2>/dev/null <"$path" | cut -c -64)" != '' ]; then
    echo '/etc/wsl.conf has changed while this ran, and was left alone; run again' >&2
    exit 1
fi
backup=/etc/wsl.conf.before-llamaherd
[ -e "$backup" ] || [ ! -e "$path" ] || { cp "$path" "$backup.new" && mv -f "$backup.new" "$backup"; } || exit 1
base64 -d >"$path.llamaherd-new" <<'END' || exit 1
W2Jvb3RdCnN5c3RlbWQ9dHJ1ZQo=
END
[ ! -e "$path" ] || chmod --reference="$path" "$path.llamaherd-new" 2>/dev/null
mv -fT "$path.llamaherd-new" "$path" || exit 1
mkdir -p /mnt/c/Users/tom && path=$(readlink -f /mnt/c/Users/tom/.wslconfig) || exit 1
# What somebody has written since it was read is not lost.
if [ "$(sha256sum 2>/dev/null <"$path" | cut -c -64)" != 2e2ad47cf7de5fe3fcc78fecf577a67c8f4e8160247877a248f661556cd0653f ]; then
    echo '/mnt/c/Users/tom/.wslconfig has changed while this ran, and was left alone; run again' >&2
    exit 1
fi
backup=/mnt/c/Users/tom/.wslconfig.before-llamaherd
[ -e "$backup" ] || [ ! -e "$path" ] || { cp "$path" "$backup.new" && mv -f "$backup.new" "$backup"; } || exit 1
base64 -d >"$path.llamaherd-new" <<'END' || exit 1
IyBtaW5lDQpbd3NsMl0NCm1lbW9yeT02NEdCDQpzd2FwPTE2R0INCm5ldHdvcmtpbmdNb2RlPW1p
cnJvcmVkDQp2bUlkbGVUaW1lb3V0PS0xDQoNCltnZW5lcmFsXQ0KaW5zdGFuY2VJZGxlVGltZW91
dD0tMQ0K
END
[ ! -e "$path" ] || chmod --reference="$path" "$path.llamaherd-new" 2>/dev/null
mv -fT "$path.llamaherd-new" "$path" || exit 1
mkdir -p /mnt/c/Users/tom/llamaherd && path=$(readlink -f /mnt/c/Users/tom/llamaherd/port-proxy.ps1) || exit 1
base64 -d >"$path.llamaherd-new" <<'END' || exit 1
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBib3hgOiBjaGFuZ2UgdGhlIGludmVudG9y
eSwgbm90IHRoaXMgZmlsZS4NCiMgTGV0cyB0aGUgTEFOIGluIHRvIHRoZSBzZXJ2ZXJzIHRoYXQg
bGlzdGVuIHRoZXJlOiB3aXRoIG1pcnJvcmVkIG5ldHdvcmtpbmcsIHRoZSBIeXBlci1WIGZpcmV3
YWxsIGFsb25lIGlzIGluIHRoZSB3YXkuDQojIFJ1biBpdCBhcyBhbiBhZG1pbmlzdHJhdG9yLCBh
cyBvZnRlbiBhcyB5b3UgbGlrZS4NCiMgVG8gdW5kbyBpdDogR2V0LU5ldEZpcmV3YWxsSHlwZXJW
UnVsZSB8IFdoZXJlLU9iamVjdCBOYW1lIC1saWtlICdsbGFtYWhlcmQtKicgfCBSZW1vdmUtTmV0
RmlyZXdhbGxIeXBlclZSdWxlDQojUmVxdWlyZXMgLVJ1bkFzQWRtaW5pc3RyYXRvcg0KJEVycm9y
QWN0aW9uUHJlZmVyZW5jZSA9ICdTdG9wJw0KDQokcG9ydHMgPSBAKDgwODApDQojIFdpbmRvd3Mn
IG5hbWUgZm9yIGFsbCB2aXJ0dWFsIG1hY2hpbmVzIG9mIFdTTC4NCiR3c2wgPSAnezQwRTBBQzMy
LTQ2QTUtNDM4QS1BMEIyLTJCNDc5RThGMkU5MH0nDQpHZXQtTmV0RmlyZXdhbGxIeXBlclZSdWxl
IHwgV2hlcmUtT2JqZWN0IE5hbWUgLWxpa2UgJ2xsYW1haGVyZC0qJyB8IFJlbW92ZS1OZXRGaXJl
d2FsbEh5cGVyVlJ1bGUNCmZvcmVhY2ggKCRwb3J0IGluICRwb3J0cykgew0KICAgIE5ldy1OZXRG
aXJld2FsbEh5cGVyVlJ1bGUgLU5hbWUgImxsYW1haGVyZC0kcG9ydCIgLURpc3BsYXlOYW1lICJs
bGFtYWhlcmQsIHBvcnQgJHBvcnQiIC1EaXJlY3Rpb24gSW5ib3VuZCAtVk1DcmVhdG9ySWQgJHdz
bCAtUHJvdG9jb2wgVENQIC1Mb2NhbFBvcnRzICRwb3J0IHwgT3V0LU51bGwNCn0NCg0KIyBTbyB0
aGF0IHRoZSBuZXh0IGBoZXJkIHVwYCBrbm93cyB0aGF0IHRoaXMgd2FzIGRvbmUsIGFuZCBkb2Vz
IG5vdCBhc2sgZm9yIGl0IGFnYWluLg0KKEdldC1GaWxlSGFzaCAtQWxnb3JpdGhtIFNIQTI1NiAk
UFNDb21tYW5kUGF0aCkuSGFzaCB8DQogICAgU2V0LUNvbnRlbnQgLUVuY29kaW5nIGFzY2lpIChb
SU8uUGF0aF06OkNoYW5nZUV4dGVuc2lvbigkUFNDb21tYW5kUGF0aCwgJy5hcHBsaWVkJykpDQo=
END
[ ! -e "$path" ] || chmod --reference="$path" "$path.llamaherd-new" 2>/dev/null
mv -fT "$path.llamaherd-new" "$path" || exit 1
mkdir -p /mnt/c/Users/tom/llamaherd && path=$(readlink -f /mnt/c/Users/tom/llamaherd/autostart.ps1) || exit 1
base64 -d >"$path.llamaherd-new" <<'END' || exit 1
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBib3hgOiBjaGFuZ2UgdGhlIGludmVudG9y
eSwgbm90IHRoaXMgZmlsZS4NCiMgU3RhcnRzIHRoZSBkaXN0cmlidXRpb24gd2hlbiB0aGlzIHVz
ZXIgbG9ncyBvbiwgYW5kIGhvbGRzIGl0LCBieSB0aGUgc2NoZWR1bGVkIHRhc2sgYGxsYW1haGVy
ZC1hdXRvc3RhcnRgOiBXU0wgc3RhcnRzDQojIG5vdGhpbmcgYnkgaXRzZWxmLCBhbmQgc3lzdGVt
ZCdzIHNlcnZpY2VzIGRvIG5vdCBrZWVwIGEgZGlzdHJpYnV0aW9uIGFsaXZlLg0KIyAtQXRTdGFy
dHVwIHN0YXJ0cyBpdCB3aXRoIFdpbmRvd3MsIGJlZm9yZSBhbnlvbmUgbG9ncyBvbi4gTm90IGV2
ZXJ5IFdTTCBjYW4gYmUgc3RhcnRlZCBzbyAobWljcm9zb2Z0L1dTTCM5MjMxKTogdHJ5IGl0Lg0K
IyBSdW4gaXQgYXMgYW4gYWRtaW5pc3RyYXRvciwgYXMgb2Z0ZW4gYXMgeW91IGxpa2UuIFRvIHVu
ZG8gaXQ6IFVucmVnaXN0ZXItU2NoZWR1bGVkVGFzayBsbGFtYWhlcmQtYXV0b3N0YXJ0DQpwYXJh
bShbc3RyaW5nXSAkRGlzdHJpYnV0aW9uLCBbc3dpdGNoXSAkQXRTdGFydHVwKQ0KI1JlcXVpcmVz
IC1SdW5Bc0FkbWluaXN0cmF0b3INCiRFcnJvckFjdGlvblByZWZlcmVuY2UgPSAnU3RvcCcNCiMg
V2hpY2ggZGlzdHJpYnV0aW9uOiB0aGUgb25lIHRoYXQgaXMgbmFtZWQsIG9yIHRoZSBvbmx5IG9u
ZSB0aGF0IHRoZXJlIGlzIGJlc2lkZXMgRG9ja2VyJ3Mgb3duLg0KJGx4c3MgPSAnSEtDVTpcU29m
dHdhcmVcTWljcm9zb2Z0XFdpbmRvd3NcQ3VycmVudFZlcnNpb25cTHhzcycNCiRuYW1lcyA9IEAo
R2V0LUNoaWxkSXRlbSAkbHhzcyAtRXJyb3JBY3Rpb24gU2lsZW50bHlDb250aW51ZSB8DQogICAg
Rm9yRWFjaC1PYmplY3QgeyAkXy5HZXRWYWx1ZSgnRGlzdHJpYnV0aW9uTmFtZScpIH0gfA0KICAg
IFdoZXJlLU9iamVjdCB7ICRfIC1hbmQgJF8gLW5vdGxpa2UgJ2RvY2tlci1kZXNrdG9wKicgfSkN
CmlmICgtbm90ICREaXN0cmlidXRpb24gLWFuZCAkbmFtZXMuQ291bnQgLWVxIDEpIHsgJERpc3Ry
aWJ1dGlvbiA9ICRuYW1lc1swXSB9DQppZiAoJG5hbWVzIC1ub3Rjb250YWlucyAkRGlzdHJpYnV0
aW9uKSB7DQogICAgaWYgKCRuYW1lcy5Db3VudCAtZXEgMCkgeyB0aHJvdyAnVGhpcyB1c2VyIGhh
cyBubyBkaXN0cmlidXRpb24uIFJ1biB0aGlzIGVsZXZhdGVkIGFzIHRoZSB1c2VyIHRoYXQgV1NM
IGJlbG9uZ3MgdG8uJyB9DQogICAgdGhyb3cgIlNheSB3aGljaCBkaXN0cmlidXRpb246IC1EaXN0
cmlidXRpb24gd2l0aCBvbmUgb2YgJCgkbmFtZXMgLWpvaW4gJywgJykuIg0KfQ0KJHVzZXIgPSBb
U2VjdXJpdHkuUHJpbmNpcGFsLldpbmRvd3NJZGVudGl0eV06OkdldEN1cnJlbnQoKS5OYW1lDQoN
CiRjb21tYW5kID0gIiYgd3NsLmV4ZSAtLWRpc3RyaWJ1dGlvbiAnJERpc3RyaWJ1dGlvbicgLS1l
eGVjIC9iaW4vc2xlZXAgaW5maW5pdHkiDQokYWN0aW9uID0gTmV3LVNjaGVkdWxlZFRhc2tBY3Rp
b24gLUV4ZWN1dGUgJ3Bvd2Vyc2hlbGwuZXhlJyAtQXJndW1lbnQgIi1Ob1Byb2ZpbGUgLVdpbmRv
d1N0eWxlIEhpZGRlbiAtQ29tbWFuZCBgIiRjb21tYW5kYCIiDQppZiAoJEF0U3RhcnR1cCkgew0K
ICAgICR0cmlnZ2VyID0gTmV3LVNjaGVkdWxlZFRhc2tUcmlnZ2VyIC1BdFN0YXJ0dXANCiAgICAk
cHJpbmNpcGFsID0gTmV3LVNjaGVkdWxlZFRhc2tQcmluY2lwYWwgLVVzZXJJZCAkdXNlciAtTG9n
b25UeXBlIFM0VQ0KfSBlbHNlIHsNCiAgICAkdHJpZ2dlciA9IE5ldy1TY2hlZHVsZWRUYXNrVHJp
Z2dlciAtQXRMb2dPbiAtVXNlciAkdXNlcg0KICAgICRwcmluY2lwYWwgPSBOZXctU2NoZWR1bGVk
VGFza1ByaW5jaXBhbCAtVXNlcklkICR1c2VyIC1Mb2dvblR5cGUgSW50ZXJhY3RpdmUNCn0NCiMg
QSB0YXNrIGlzIGVuZGVkIGFmdGVyIHRocmVlIGRheXMgb3RoZXJ3aXNlLCBhbmQgdGhlIGRpc3Ry
aWJ1dGlvbiB3aXRoIGl0IChtaWNyb3NvZnQvV1NMIzEwNzA4KS4NCiRzZXR0aW5ncyA9IE5ldy1T
Y2hlZHVsZWRUYXNrU2V0dGluZ3NTZXQgLUV4ZWN1dGlvblRpbWVMaW1pdCAoW1RpbWVTcGFuXTo6
WmVybykgLU11bHRpcGxlSW5zdGFuY2VzIElnbm9yZU5ldyAtQWxsb3dTdGFydElmT25CYXR0ZXJp
ZXMgLURvbnRTdG9wSWZHb2luZ09uQmF0dGVyaWVzDQpSZWdpc3Rlci1TY2hlZHVsZWRUYXNrIC1U
YXNrTmFtZSAnbGxhbWFoZXJkLWF1dG9zdGFydCcgLUFjdGlvbiAkYWN0aW9uIC1UcmlnZ2VyICR0
cmlnZ2VyIC1TZXR0aW5ncyAkc2V0dGluZ3MgLVByaW5jaXBhbCAkcHJpbmNpcGFsIC1Gb3JjZSB8
IE91dC1OdWxsDQpTdGFydC1TY2hlZHVsZWRUYXNrIC1UYXNrTmFtZSAnbGxhbWFoZXJkLWF1dG9z
dGFydCcNCg0KIyBTbyB0aGF0IHRoZSBuZXh0IGBoZXJkIHVwYCBrbm93cyB0aGF0IHRoaXMgd2Fz
IGRvbmUsIGFuZCBkb2VzIG5vdCBhc2sgZm9yIGl0IGFnYWluLg0KKEdldC1GaWxlSGFzaCAtQWxn
b3JpdGhtIFNIQTI1NiAkUFNDb21tYW5kUGF0aCkuSGFzaCB8DQogICAgU2V0LUNvbnRlbnQgLUVu
Y29kaW5nIGFzY2lpIChbSU8uUGF0aF06OkNoYW5nZUV4dGVuc2lvbigkUFNDb21tYW5kUGF0aCwg
Jy5hcHBsaWVkJykpDQo=
END
[ ! -e "$path" ] || chmod --reference="$path" "$path.llamaherd-new" 2>/dev/null
mv -fT "$path.llamaherd-new" "$path" || exit 1
rm -f /mnt/c/Users/tom/llamaherd/gpu-power.ps1 /mnt/c/Users/tom/llamaherd/gpu-power.applied || exit 1
