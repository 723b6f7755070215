#!/usr/bin/env bash
# Builds a Kubernetes 1.20.2 for the tests into a folder, from Debian's source package; nothing is
# installed. Needs Debian 12, dpkg-dev, 4 GB of disk, and about six minutes of one core.
set -euo pipefail
target=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$target.building
mkdir -p "$(dirname "$target")"
exec 9>"$target.lock"
flock 9
[[ -d $target ]] && exit 0
rm -rf "$work"
mkdir -p "$work"/{apt/lists/partial,apt/cache/archives/partial,debs,root,src,bin,images,gopath/src/k8s.io}
cd "$work"
sed 's/^Types: deb$/Types: deb deb-src/' /etc/apt/sources.list.d/debian.sources >apt/debian.sources
apt=(-o Dir::Etc::sourcelist="$work/apt/debian.sources" -o Dir::Etc::sourceparts=-
    -o Dir::State::lists="$work/apt/lists" -o Dir::Cache="$work/apt/cache" -qq)
apt-get "${apt[@]}" update
(cd debs && apt-get "${apt[@]}" download golang-1.19-go golang-1.19-src etcd-server containerd runc \
    containernetworking-plugins kubernetes-client busybox-static)
for each in debs/*.deb; do dpkg-deb -x "$each" root; done
(cd src && apt-get "${apt[@]}" source kubernetes && mv kubernetes-*/ kubernetes)
export GOROOT=$work/root/usr/lib/go-1.19 GOPATH=$work/gopath GOCACHE=$work/gocache GO111MODULE=off
export GOFLAGS='' GOPROXY=off CGO_ENABLED=0 PATH=$work/root/usr/lib/go-1.19/bin:$PATH
ln -sfn "$work/src/kubernetes" gopath/src/k8s.io/kubernetes
cd gopath/src/k8s.io/kubernetes
jobs=${JOBS:-1}
# One generated file is missing from Debian's package; the vendored generator makes it.
go build -p "$jobs" -o "$work/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
packages=$(find -L vendor/k8s.io pkg cmd -name '*.go' -not -name '*_test.go' -print0 |
    xargs -0 grep -l '+k8s:openapi-gen=' | xargs -n1 dirname | grep -v '_examples\|sample-' |
    sort -u | sed 's|^vendor/||; t; s|^|k8s.io/kubernetes/|' | paste -sd,)
"$work/openapi-gen" -O zz_generated.openapi --input-dirs "$packages" \
    --go-header-file hack/boilerplate/boilerplate.generatego.txt --output-base "$GOPATH/src" \
    --output-package k8s.io/kubernetes/pkg/generated/openapi --report-filename "$work/openapi.report"
version=k8s.io/kubernetes/vendor/k8s.io/component-base/version
for each in kube-apiserver kube-controller-manager kube-scheduler kubelet; do
    go build -p "$jobs" -tags providerless,dockerless -o "$work/bin/$each" \
        -ldflags "-s -w -X $version.gitVersion=v1.20.2 -X $version.gitMajor=1 -X $version.gitMinor=20
            -X k8s.io/kubernetes/vendor/k8s.io/client-go/pkg/version.gitVersion=v1.20.2" \
        "k8s.io/kubernetes/cmd/$each"
done
cd "$work"
cp root/usr/bin/{etcd,containerd,containerd-shim-runc-v2,ctr} root/usr/sbin/runc root/bin/busybox bin/
cp root/usr/bin/kubectl bin/kubectl 2>/dev/null || true
cp -r root/usr/lib/cni cni
python3 "$here/images.py" bin/busybox images
rm -rf apt debs root src gopath gocache openapi-gen openapi.report
mv "$work" "$target"
