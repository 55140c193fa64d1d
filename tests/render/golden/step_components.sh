# Parts of the distribution's repository that apt does not know yet, added beside the host's own sources: the same
# address, the same suites, the same key.
export LC_ALL=C
<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 "parts of the distribution's repository" || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
. /etc/os-release
file=/etc/apt/sources.list.d/llamaherd-restricted-multiverse.sources
apt-get indextargets --format '$(ORIGIN)|$(COMPONENT)|$(REPO_URI)|$(RELEASE)|$(SIGNED_BY)' 'Created-By: Packages' |
    awk -F'|' -v suite="$VERSION_CODENAME" -v wanted='restricted multiverse' '
        # Suites of this release, whoever mirrors them; what others offer besides is none of it.
        $2 == "main" && ($4 == suite || index($4, suite "-") == 1) && $4 !~ /-(backports|proposed)/ && !seen[$3 $4]++ {
            print "Types: deb\nURIs: " $3 "\nSuites: " $4 "\nComponents: " wanted
            if ($5 != "" && $5 !~ /^\$/) print "Signed-By: " $5
            print ""
        }' >"$work/sources"
[ -s "$work/sources" ] || {
    echo "apt on this host knows no \`main\` of $VERSION_CODENAME, so that where its restricted, multiverse would come from is not known" >&2
    exit 1
}
{ echo '# Written by llamaherd for the driver of NVIDIA.'; cat "$work/sources"; } >"$file.llamaherd-new" &&
    chmod 0644 "$file.llamaherd-new" && mv -f "$file.llamaherd-new" "$file" || exit 1
apt-get -q -o DPkg::Lock::Timeout=600 -o APT::Update::Error-Mode=any update >"$work/said" 2>&1 || {
    rm -f "$file"
    grep -E '^(E|W|Err)' "$work/said" | head -n 5 >&2
    echo "the distribution's restricted, multiverse could not be had; nothing was added" >&2
    exit 1
}
