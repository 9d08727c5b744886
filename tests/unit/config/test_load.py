"""Settings come from file, environment and flags, and all faults are reported together."""

from pathlib import Path

import pytest

from leveret.config.load import load
from leveret.config.settings import Settings, env_name, flag_name, memory_high_bytes, options
from leveret.errors import ConfigError


def faults_of(
    flags: dict[str, object], env: dict[str, str] | None = None, config_file: str | None = None
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(flags, env or {}, config_file)
    return str(caught.value).splitlines()


def test_without_any_source_every_option_has_its_default() -> None:
    assert load({}, {}) == Settings()


def test_flag_goes_before_environment_and_environment_before_file(tmp_path: Path) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text('amqp_port = 1001\nhttp_port = 1002\nnode = "from-file"\n')
    env = {"LEVERET_HTTP_PORT": "2002", "LEVERET_NODE": "from-env"}
    settings = load({"node": "from-flag"}, env, str(file))
    assert (settings.amqp_port, settings.http_port, settings.node) == (1001, 2002, "from-flag")


def test_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text("heartbeat_s = 7\n")
    assert load({}, {"LEVERET_CONFIG": str(file)}).heartbeat_s == 7


def test_all_faults_are_reported_together_with_their_places(tmp_path: Path) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text('amqp_prot = 1\npark_over_limit = "perhaps"\n')
    env = {"LEVERET_HTTP_PORT": "tcp://10.0.0.1:80"}
    assert faults_of({"amqp_port": "99999"}, env, str(file)) == [
        f"{file}:1: amqp_prot: no such option; did you mean amqp_port?",
        f"{file}:2: park_over_limit: 'perhaps' is not true or false",
        "LEVERET_HTTP_PORT: 'tcp://10.0.0.1:80' is not a whole number",
        "--amqp-port: 99999 is not between 0 and 65535",
    ]


def test_file_that_is_missing_or_not_toml_is_a_fault(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert faults_of({}, config_file=str(missing)) == [
        f"{missing}: cannot be read: No such file or directory"
    ]
    broken = tmp_path / "broken.toml"
    broken.write_text("amqp_port 5672\n")
    assert faults_of({}, config_file=str(broken))[0].startswith(f"{broken}: is not TOML: ")
    broken.write_text(f"amqp_port = {'[' * 100_000}\n")
    assert faults_of({}, config_file=str(broken)) == [f"{broken}: is nested too deep"]


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "9" * 30, "9" * 4000])
def test_numbers_without_bounds_are_faults(tmp_path: Path, number: str) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text(f"amqp_port = {number}\nmemory_high = {number}\n")
    assert faults_of({}, config_file=str(file)) == [
        f"{file}:1: amqp_port: it is not a whole number below 2^63",
        f"{file}:2: memory_high: it is not a number below 2^63",
    ]


def test_a_number_of_many_digits_in_the_environment_is_a_fault() -> None:
    (fault,) = faults_of({}, {"LEVERET_AMQP_PORT": "9" * 5000})
    assert fault == "LEVERET_AMQP_PORT: it is not a whole number below 2^63"


def test_unknown_variable_is_a_fault() -> None:
    assert faults_of({}, {"LEVERET_AMQP_PROT": "1", "LEVERET_QWXYZ": "1"}) == [
        "LEVERET_AMQP_PROT: no such option; did you mean LEVERET_AMQP_PORT?",
        "LEVERET_QWXYZ: no such option",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "LEVERET_URL",
        "LEVERET_JOBS_TOKEN",
        "LEVERET_SERVICE_HOST",
        "LEVERET_SERVICE_PORT_AMQP",
        "LEVERET_PORT",
        "LEVERET_PORT_5672_TCP_ADDR",
        "LEVERET_HEADLESS_SERVICE_HOST",
    ],
)
def test_variables_of_commands_and_orchestrators_are_no_faults(name: str) -> None:
    assert load({}, {name: "tcp://10.0.0.1:80"}) == Settings()


def test_fault_in_a_table_or_a_quoted_key_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text('# amqp_port = 1\n\n"heartbeat_s" = "x"\n[server]\nport = 1\n')
    assert [fault.partition(": ")[0] for fault in faults_of({}, config_file=str(file))] == [
        f"{file}:3",
        f"{file}:4",
    ]


def test_a_fault_found_later_names_the_place_where_its_option_was_given(tmp_path: Path) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text('node = "a"\nhttp_port = 7000\namqp_port = 7001\n')
    settings = load({"amqp_port": "7002"}, {"LEVERET_HOST": "::1"}, str(file))
    assert settings.placed("http_port: is taken") == f"{file}:2: http_port: is taken"
    assert settings.placed("amqp_port: is taken") == "--amqp-port: is taken"
    assert settings.placed("host: is wrong") == "LEVERET_HOST: is wrong"
    assert settings.placed("tls_cert: is missing") == "--tls-cert: is missing"
    both = "amqp_port and http_port: both"
    assert settings.placed(both) == f"--amqp-port and {file}:2: http_port: both"
    for other in ("the node: is wrong", "no_option: is wrong", "places: x", "node is wrong"):
        assert settings.placed(other) == other


def test_jobs_need_redis_and_postgresql_or_neither() -> None:
    fault = "set both, or neither to keep jobs in the broker"
    assert faults_of({}, {"LEVERET_JOBS_REDIS": "redis://u:secret@h"}) == [
        f"LEVERET_JOBS_REDIS and --jobs-postgres: {fault}"
    ]


def test_both_fronts_cannot_have_one_port_unless_it_is_picked() -> None:
    assert faults_of({"amqp_port": "7000", "http_port": "7000"}) == [
        "--amqp-port and --http-port: both use port 7000: change one of them"
    ]
    assert load({"amqp_port": "0", "http_port": "0"}, {}).amqp_port == 0


CLUSTER: dict[str, object] = {
    "node": "a",
    "cluster_listen": "127.0.0.1:7000",
    "cluster_peers": "a=127.0.0.1:7000,b=127.0.0.1:7001",
    "cluster_secret": "sixteen bytes or more",
}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"node": "c"},
            (
                "--cluster-peers: 'a=127.0.0.1:7000,b=127.0.0.1:7001' does not name this node, c:"
                " add it, or give this node one of these names (--node)"
            ),
        ),
        ({"cluster_peers": "a=127.0.0.1:7000,a=127.0.0.1:7001"}, "--cluster-peers: names a twice"),
        ({"cluster_secret": ""}, "--cluster-secret and --cluster-secret-file: set one of them"),
        (
            {"cluster_secret_file": "f"},
            "--cluster-secret and --cluster-secret-file: set one of them",
        ),
        ({"cluster_tls": "true"}, "--cluster-tls: needs tls_cert and tls_ca"),
        (
            {"cluster_listen": "127.0.0.1:70000"},
            "--cluster-listen: the port of 127.0.0.1:70000 is not between 1 and 65535",
        ),
        (
            {"cluster_peers": "a=127.0.0.1:7000,b=127.0.0.1:0"},
            "--cluster-peers: the port of 127.0.0.1:0 is not between 1 and 65535",
        ),
        ({"cluster_peers": "a"}, "--cluster-peers: 'a' does not have the form NAME=HOST:PORT,…"),
        ({"cluster_secret": "short"}, "--cluster-secret: it must have 16 to 1024 characters"),
        ({"durability": "os"}, "--durability: a cluster needs sync"),
    ],
)
def test_options_of_a_cluster_fit_together(changes: dict[str, object], fault: str) -> None:
    assert faults_of({**CLUSTER, **changes}) == [fault]


def test_options_of_a_cluster_need_an_address() -> None:
    given = {**CLUSTER, "cluster_listen": ""}
    assert faults_of(given) == [
        "--cluster-peers: needs cluster_listen",
        "--cluster-secret: needs cluster_listen",
    ]
    assert load(CLUSTER, {}).cluster_peers == CLUSTER["cluster_peers"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1048576", 1 << 20), ("1 MiB", 1 << 20), ("1.5KiB", 1536), ("2mb", 2_000_000)],
)
def test_sizes_may_carry_a_unit(text: str, value: int) -> None:
    assert load({"message_bytes_max": text}, {}).message_bytes_max == value


@pytest.mark.parametrize("text", ["", "-1", "1.5", "ten", "1 parsec", "0x10", "1e3"])
def test_text_that_is_no_whole_number_is_a_fault(text: str) -> None:
    assert len(faults_of({"heartbeat_s": text})) == 1


@pytest.mark.parametrize("text", ["yes", "TRUE", "on", "1"])
def test_booleans_are_read_from_the_usual_words(text: str) -> None:
    assert load({"park_over_limit": text}, {}).park_over_limit is True


def test_number_for_a_text_option_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text("host = 127\namqp_port = true\n")
    assert faults_of({}, config_file=str(file)) == [
        f"{file}:1: host: 127 is not text",
        f"{file}:2: amqp_port: True is not a whole number",
    ]


def test_memory_limit_is_a_share_up_to_one_and_bytes_above() -> None:
    assert memory_high_bytes(load({"memory_high": "0.5"}, {}).memory_high, 1000) == 500
    assert memory_high_bytes(load({"memory_high": "1GiB"}, {}).memory_high, 1000) == 1 << 30


def test_password_is_never_shown() -> None:
    settings = load({"default_pass": "hunter2"}, {})
    assert settings.default_pass == "hunter2"
    assert "hunter2" not in repr(settings)


def test_names_of_an_option_follow_from_its_field() -> None:
    assert env_name("amqp_port") == "LEVERET_AMQP_PORT"
    assert flag_name("amqp_port") == "--amqp-port"


def test_every_default_passes_the_check_of_its_own_option() -> None:
    for name, option in options().items():
        default = getattr(Settings(), name)
        if default not in ("", None):
            raw = default if isinstance(default, bool | int | float) else str(default)
            assert option.read(raw) == default


def test_ports_for_tls_are_off_unless_they_are_given(tmp_path: Path) -> None:
    assert load({}, {}).amqps_port is None
    cert = str(tmp_path / "cert.pem")
    settings = load({"amqps_port": "0", "tls_cert": cert}, {"LEVERET_HTTPS_PORT": "15671"})
    assert (settings.amqps_port, settings.https_port) == (0, 15671)
    assert settings.tls_cert == Path(cert)


def test_settings_of_tls_must_fit_together() -> None:
    assert faults_of({"amqps_port": "5671", "https_port": "5671", "tls_verify": "required"}) == [
        "--amqps-port and --https-port: both use port 5671: change one of them",
        "--tls-cert: a TLS port needs a certificate: name its file here",
        "--tls-ca: client certificates cannot be verified without it: name a file here",
    ]


def test_settings_of_tokens_must_fit_together() -> None:
    assert faults_of({"oauth2_resource_server_id": "broker"}) == [
        "--oauth2-resource-server-id: tokens cannot be verified without a key"
    ]
    assert faults_of({"oauth2_secret": "short"}) == [
        "--oauth2-secret: it has no effect without oauth2_resource_server_id",
        "--oauth2-secret: it is shorter than 32 characters",
    ]
    assert faults_of({"oauth2_jwks_url": "http://elsewhere/keys"})[0] == (
        "--oauth2-jwks-url: 'http://elsewhere/keys' does not have the form https://…"
    )
