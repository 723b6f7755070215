"""A Kubernetes cluster: a control plane here, and hosts of :mod:`harness.network` as nodes.

    this machine: etcd, API server, controllers, scheduler --- switch --- h1, h2: a kubelet each

The programs are built once a machine by tests/kubernetes/build.sh. No image is pulled, and nothing
leaves the namespaces. There is no DNS, and no kube-proxy: pods reach each other by their addresses.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from harness import network as networks
from harness.processes import captured
from harness.requirements import reason
from harness.waiting import wait_until

HOME = Path(os.environ.get("DISTRUN_TESTS_CACHE", "/var/cache/distrun-tests")) / "kubernetes-1.20.2"
NODES = 2
_DEADLINE = 120.0
_BUILD = f"tests/kubernetes/build.sh {HOME}"
_USERS = """\
admin-token,admin,admin,system:masters
kcm-token,system:kube-controller-manager,kcm,system:masters
sched-token,system:kube-scheduler,sched
"""
_CONTAINERD = Path(__file__).with_name("containerd.toml").read_text()
# Both need one of the user's inotify instances, of which other tests may have all for a moment.
_BOOT = r"""
export {path}
start() {{
    setsid {home}/bin/containerd -c {folder}/containerd.toml >>{folder}/containerd.log 2>&1 \
        </dev/null &
    until {ctr} version; do sleep 0.1; done
}}
start
until {ctr} plugins ls | grep -q 'cri .*ok'; do kill $!; wait $!; sleep 0.5; start; done
for image in {images}; do {ctr} -n k8s.io images import $image; done
setsid sh -c 'while :; do {kubelet}; sleep 0.5; done' >>{folder}/kubelet.log 2>&1 </dev/null &
"""
# Instead of kube-proxy: pods reach the API server by the address of the service `kubernetes`.
_SERVICE = """\
table ip kubernetes {{
    chain pods {{
        type nat hook prerouting priority -100
        ip daddr 10.93.0.1 tcp dport 443 dnat to {server}:6443
    }}
    chain answers {{
        type nat hook postrouting priority 100
        ip daddr {server} tcp dport 6443 masquerade
    }}
}}
"""
_IMAGES = Path(__file__).resolve().parents[1] / "kubernetes/images.py"
_READ_ONLY = ("/usr", "/lib", "/lib64", "/bin")


def why_not() -> str | None:
    """Why such a cluster cannot be made here; None where it can."""
    lacking = networks.why_not()
    if lacking is None and not HOME.is_dir():
        return reason(f"no Kubernetes has been built in {HOME}", _BUILD)
    return lacking


class Cluster:
    """The cluster. `kubeconfig` is that of its administrator."""

    def __init__(self, processes: set[int]) -> None:
        self.network = networks.Network(processes)
        self._processes = processes
        os.environ["PATH"] += f"{os.pathsep}{HOME}/bin"  # has kubectl
        os.environ["GOGC"] = "400"  # a sixth of the cluster's CPU was the search for garbage
        self.folder = self.network.folder / "kubernetes"
        self.nodes = self.network.hosts(NODES)
        for name in ("keys", "etcd", "log"):
            (self.folder / name).mkdir(parents=True)
        self.kubeconfig = self.folder / "admin.kubeconfig"
        self._write_keys()
        self._write_image()
        self._control: dict[str, subprocess.Popen[bytes]] = {}
        self._start_control_plane()
        for number, node in enumerate(self.nodes, start=1):
            self._start_node(number, node)
        self._wait_for_nodes()

    def _write_image(self) -> None:
        """Write an image that has this machine's Python with TensorFlow, by mounts of the runtime.

        Pods need no volumes for it, as with an image that somebody has built.
        """
        write = runpy.run_path(str(_IMAGES))["write"]
        python = Path(sys.executable).parent
        write(self.folder / "tensorflow.tar", "local/tensorflow:1", {}, [], f"{python}:")
        made = subprocess.run((f"{HOME}/bin/ctr", "oci", "spec"), check=True, capture_output=True)
        spec = json.loads(made.stdout)
        spec["mounts"] += [
            {"destination": each, "source": os.path.realpath(each), "type": "bind",
             "options": ["rbind", "ro"]}
            for each in _folders()
        ]  # fmt: skip
        self._runtime = json.dumps(spec)

    def _write_keys(self) -> None:
        private, public = self.folder / "keys/sa.key", self.folder / "keys/sa.pub"
        for words in (f"genrsa -out {private} 2048", f"rsa -in {private} -pubout -out {public}"):
            subprocess.run(("openssl", *words.split()), check=True, capture_output=True)
        names = [each.name for each in self.nodes]
        rows = (f"{each}-token,system:node:{each},{each},system:nodes\n" for each in names)
        (self.folder / "keys/tokens.csv").write_text(_USERS + "".join(rows))
        for name in ("admin", "kcm", "sched", *names):
            self.write_kubeconfig(name, f"{name}-token")

    def write_kubeconfig(self, name: str, token: str) -> Path:
        server = f"https://{self.network.gateway}:6443"
        at = {"server": server, "certificate-authority": str(self.folder / "keys/apiserver.crt")}
        document = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": at}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    # The control plane ---------------------------------------------------------------------

    def _hold(self, name: str, *command: str) -> None:
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            self._control[name] = networks.hold(*command, stderr=log)
        self._processes.add(self._control[name].pid)

    def _start_control_plane(self) -> None:
        address = self.network.gateway
        etcd = f"http://{address}:2379"
        peers = f"http://{address}:2380"
        self._hold(
            "etcd", f"{HOME}/bin/etcd", "--data-dir", f"{self.folder}/etcd",
            "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
            "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
            "--initial-cluster", f"default={peers}", "--unsafe-no-fsync",
        )  # fmt: skip
        self.start_api_server()
        keys = self.folder / "keys"
        kcm, sched = self.folder / "kcm.kubeconfig", self.folder / "sched.kubeconfig"
        self._hold(
            "controllers", f"{HOME}/bin/kube-controller-manager", f"--kubeconfig={kcm}",
            "--leader-elect=false", f"--service-account-private-key-file={keys}/sa.key",
            f"--root-ca-file={keys}/apiserver.crt", "--port=0", "--secure-port=0",
            "--controllers=*,-cloud-node-lifecycle,-service,-route",
            "--feature-gates=TTLAfterFinished=true", "--node-monitor-grace-period=20s",
            "--node-monitor-period=1s",
        )  # fmt: skip
        self._hold(
            "scheduler", f"{HOME}/bin/kube-scheduler", f"--kubeconfig={sched}",
            "--leader-elect=false", "--port=0", "--secure-port=0",
        )  # fmt: skip

    def start_api_server(self) -> None:
        keys, address = self.folder / "keys", self.network.gateway
        self._hold(
            "apiserver", f"{HOME}/bin/kube-apiserver", f"--etcd-servers=http://{address}:2379",
            f"--cert-dir={keys}", f"--bind-address={address}", "--secure-port=6443",
            "--insecure-port=0", "--kubelet-preferred-address-types=InternalIP",
            f"--token-auth-file={keys}/tokens.csv", "--authorization-mode=Node,RBAC",
            "--service-cluster-ip-range=10.93.0.0/16", "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={keys}/sa.key",
            f"--service-account-key-file={keys}/sa.pub", "--feature-gates=TTLAfterFinished=true",
            "--endpoint-reconciler-type=none",
        )  # fmt: skip
        wait_until(
            lambda: self.kubectl("get", "--raw", "/readyz", check=False) == "ok",
            _DEADLINE,
            "the API server is ready",
        )

    # Nodes ---------------------------------------------------------------------------------

    def _start_node(self, number: int, node: networks.Host) -> None:
        folder = self.folder / node.name
        for name in ("cni", "kubelet"):
            (folder / name).mkdir(parents=True)
        ranges: Any = [[{"subnet": f"10.92.{number}.0/24"}]]
        ipam: dict[str, Any] = {"type": "host-local", "dataDir": f"{folder}/ipam", "ranges": ranges}
        ipam["routes"] = [{"dst": "0.0.0.0/0"}]
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": ipam}
        plugins = [bridge, {"type": "loopback"}]
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}
        (folder / "cni/10.conflist").write_text(json.dumps(network))
        (folder / "containerd.toml").write_text(_CONTAINERD.format(folder=folder, home=HOME))
        (folder / "runtime.json").write_text(self._runtime)
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": node.address, "healthzPort": 0, "resolvConf": f"{folder}/resolv.conf",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "makeIPTablesUtilChains": False,
            "cgroupDriver": "cgroupfs", "cgroupRoot": "/", "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [], "failSwapOn": False, "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%",
                             "imagefs.available": "0%", "nodefs.inodesFree": "0%"},
            "nodeStatusUpdateFrequency": "1s",  # with 3 s, a lost node keeps its pods
        }  # fmt: skip
        (folder / "kubelet.yaml").write_text(yaml.safe_dump(kubelet))
        # kubelet would ask a cloud's metadata service, and wait for it.
        node.run("ip", "route", "del", "default")
        node.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        node.run("nft", "-f", "-", given=_SERVICE.format(server=self.network.gateway))
        for other, each in enumerate(self.nodes, start=1):
            if each is not node:
                node.run("ip", "route", "add", f"10.92.{other}.0/24", "via", each.address)
        path = f"PATH={HOME}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        ctr = f"{HOME}/bin/ctr -a {folder}/containerd.sock"
        kubelet_command = (
            f"{HOME}/bin/kubelet --config {folder}/kubelet.yaml --kubeconfig "
            f"{self.folder}/{node.name}.kubeconfig --hostname-override {node.name} --node-ip "
            f"{node.address} --root-dir {folder}/kubelet --cert-dir {folder}/keys "
            "--container-runtime remote --container-runtime-endpoint "
            f"unix://{folder}/containerd.sock --kernel-memcg-notification=false"
        )
        images = f"{HOME}/images/* {self.folder}/tensorflow.tar"
        script = _BOOT.format(
            path=path, ctr=ctr, home=HOME, folder=folder, images=images, kubelet=kubelet_command
        )
        node.run("sh", "-c", script)

    def _wait_for_nodes(self) -> None:
        def are_ready() -> bool:  # as the scheduler sees it
            taints = r'jsonpath={range .items[*]}{.spec.taints}{"\n"}{end}'
            return self.kubectl("get", "nodes", "-o", taints, check=False) == "\n" * NODES

        wait_until(are_ready, _DEADLINE, "all nodes are ready")
        account = ("get", "serviceaccount", "default", "-o", "jsonpath={.secrets}")
        wait_until(
            lambda: self.kubectl(*account, check=False), _DEADLINE, "there is an account for pods"
        )

    # What tests ask ------------------------------------------------------------------------

    def kubectl(self, *arguments: str, check: bool = True, given: str = "") -> str:
        done = captured(("kubectl", f"--kubeconfig={self.kubeconfig}", *arguments), input=given)
        assert not check or done.returncode == 0, done.stderr
        printed: str = done.stdout
        return printed

    def objects(self, kind: str = "jobs,pods") -> list[dict[str, Any]]:
        """The objects of some kinds; a pod that has ended and is being removed does not count."""
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "-o", "json"))["items"]
        return [
            each
            for each in items
            if each["kind"] != "Pod"
            or "deletionTimestamp" not in each["metadata"]
            or "'running':" in str(each["status"].get("containerStatuses"))
        ]

    def pod_of(self, number: int) -> str:
        there = ("Running", self.nodes[number].name)
        found = ((each["status"].get("phase"), each) for each in self.objects("pods"))
        pods = (each for phase, each in found if (phase, each["spec"].get("nodeName")) == there)
        return str(next(pods)["metadata"]["name"])

    def add_condition(self, pod: str, kind: str, reason: str, message: str) -> None:
        """Write a condition into a pod's status, as later versions of Kubernetes do."""
        now = json.loads(self.kubectl("get", "pod", pod, "-o", "json"))
        written = {"type": kind, "status": "True", "reason": reason, "message": message}
        now["status"]["conditions"].append(written)
        path = f"/api/v1/namespaces/default/pods/{pod}/status"
        self.kubectl("replace", "--raw", path, "-f", "-", given=json.dumps(now))

    def mend(self) -> list[str]:
        """Have it as new. Returns what was left in it."""
        for node in self.nodes:
            node.mend()
        if self._control["apiserver"].poll() is not None:
            self.start_api_server()
        left = [f"{each['kind']} {each['metadata']['name']}" for each in self.objects()]
        kinds = "jobs,pods,configmaps,pvc,resourcequotas,roles,rolebindings"
        options = ("--all", "--force", "--grace-period=0", "--wait=false")
        self.kubectl("delete", kinds, *options, check=False)
        for node in self.nodes:
            self.kubectl("uncordon", node.name)
        # Until a node is back, the next test's pods would all run on the other one.
        self._wait_for_nodes()
        return left

    def close(self) -> None:
        for each in reversed(self._control.values()):
            each.kill()
            each.wait()
        self.network.close()


def _folders() -> list[str]:
    """The folders of this machine that have the programs of its Python."""
    interpreters = {str(Path(sys.executable).resolve().parents[1]), sys.prefix, sys.base_prefix}
    below = tuple(f"{each}/" for each in _READ_ONLY)
    return [
        *_READ_ONLY,
        *(each for each in sorted(interpreters) if not f"{each}/".startswith(below)),
    ]


def overlay() -> dict[str, Any]:
    """What makes pods of the empty image like this machine: its programs, mounted."""
    python = Path(sys.executable).resolve()
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]
    for number, each in enumerate(_folders()):
        # What is a link on this machine is a folder in the pod.
        volumes.append({"name": f"m{number}", "hostPath": {"path": os.path.realpath(each)}})
        mounts.append({"name": f"m{number}", "mountPath": each, "readOnly": True})
    found = shutil.which("python3") or "/usr/bin/python3"
    path = os.pathsep.join((str(python.parent), os.path.dirname(found), "/usr/bin", "/bin"))
    env = [{"name": "PATH", "value": path}, {"name": "HOME", "value": "/tmp"}]
    container = {"imagePullPolicy": "Never", "env": env, "volumeMounts": mounts}
    return {"spec": {"containers": [container], "volumes": volumes}}
