#!/usr/bin/env bash
# Builds a Kubernetes 1.20.2 for the tests into a folder, from Debian's source package; nothing is
# installed. Needs Debian 12, dpkg-dev, 4 GB of disk, and about six minutes of one core. What is
# compiled is kept beside the folder until all is: a build that is broken off goes on the next time.
set -euo pipefail
target=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$target.building
mkdir -p "$(dirname "$target")"
exec 9>"$target.lock"
flock 9
[[ -d $target ]] && exit 0
trap 'rm -rf "$work"' EXIT
rm -rf "$work"
mkdir -p "$work"/{apt/lists/partial,apt/cache/archives/partial,debs,root,src,made/{bin,images},gopath/src/k8s.io}
cd "$work"
sed 's/^Types: deb$/Types: deb deb-src/' /etc/apt/sources.list.d/debian.sources >apt/debian.sources
apt=(-o Dir::Etc::sourcelist="$work/apt/debian.sources" -o Dir::Etc::sourceparts=-
    -o Dir::State::lists="$work/apt/lists" -o Dir::Cache="$work/apt/cache" -qq)
apt-get "${apt[@]}" update
(cd debs && apt-get "${apt[@]}" download golang-1.19-go golang-1.19-src etcd-server containerd runc \
    containernetworking-plugins kubernetes-client busybox-static)
for each in debs/*.deb; do dpkg-deb -x "$each" root; done
(cd src && apt-get "${apt[@]}" source kubernetes && mv kubernetes-*/ kubernetes)
export GOROOT=$work/root/usr/lib/go-1.19 GOPATH=$work/gopath GOCACHE=$target.gocache GO111MODULE=off
export GOFLAGS='' GOPROXY=off CGO_ENABLED=0 PATH=$work/root/usr/lib/go-1.19/bin:$PATH
ln -sfn "$work/src/kubernetes" gopath/src/k8s.io/kubernetes
cd gopath/src/k8s.io/kubernetes
# One generated file is missing from Debian's package; the vendored generator makes it.
go build -o "$work/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
packages=$(find -L vendor/k8s.io pkg cmd -name '*.go' -not -name '*_test.go' -print0 |
    xargs -0 grep -l '+k8s:openapi-gen=' | xargs -n1 dirname | grep -v '_examples\|sample-' |
    sort -u | sed 's|^vendor/||; t; s|^|k8s.io/kubernetes/|' | paste -sd,)
"$work/openapi-gen" -O zz_generated.openapi --input-dirs "$packages" \
    --go-header-file hack/boilerplate/boilerplate.generatego.txt --output-base "$GOPATH/src" \
    --output-package k8s.io/kubernetes/pkg/generated/openapi --report-filename "$work/openapi.report"
version=k8s.io/kubernetes/vendor/k8s.io/component-base/version
go build -tags providerless,dockerless -o "$work/made/bin/" \
    -ldflags "-s -w -X $version.gitVersion=v1.20.2 -X $version.gitMajor=1 -X $version.gitMinor=20
        -X k8s.io/kubernetes/vendor/k8s.io/client-go/pkg/version.gitVersion=v1.20.2" \
    k8s.io/kubernetes/cmd/kube{-apiserver,-controller-manager,-scheduler,let}
cd "$work"
cp root/usr/bin/{etcd,containerd,containerd-shim-runc-v2,ctr,kubectl} root/usr/sbin/runc \
    root/bin/busybox made/bin/
cp -r root/usr/lib/cni made/cni
python3 "$here/images.py" made/bin/busybox made/images
mv made "$target"
rm -rf "$GOCACHE"
