#include "launcher/distributed/hostfile.h"

#include <gtest/gtest.h>

namespace ipexrun::launcher {
namespace {

TEST(Hostfile, both_forms_comments_and_empty_lines) {
  const auto hosts = parse_hostfile("h", "# all\n\na\nb slots=4 max-slots=8  # fast\nc.example:2\n10.0.0.1\n");
  ASSERT_TRUE(hosts.ok()) << hosts.error().line();
  ASSERT_EQ(hosts->size(), 4u);
  EXPECT_EQ((*hosts)[0].host, "a");
  EXPECT_TRUE((*hosts)[1].open_mpi_form);
  EXPECT_EQ((*hosts)[1].line, 4);
  EXPECT_EQ((*hosts)[2].host, "c.example");
  EXPECT_TRUE((*hosts)[2].hydra_form);
  EXPECT_FALSE((*hosts)[3].hydra_form || (*hosts)[3].open_mpi_form);
}

TEST(Hostfile, bad_lines_are_named) {
  for (const char* bad : {"-x", "a b", "a slots=", "a slots=0", "a slots=x", "a:x", "a:", "a;b", "a threads=2", "$(x)", "a\na"}) {
    const auto hosts = parse_hostfile("hosts.txt", std::string("ok\n") + bad + "\n");
    ASSERT_FALSE(hosts.ok()) << bad;
    EXPECT_EQ(hosts.error().code, kExitUsage);
    EXPECT_NE(hosts.error().what.find("hosts.txt:"), std::string::npos) << hosts.error().what;
  }
}

TEST(Hostfile, ipv6_addresses_are_hosts_and_no_counts) {
  const auto hosts = parse_hostfile("h", "fe80::1 slots=2\n::1\n2001:db8::2:4\n");
  ASSERT_TRUE(hosts.ok()) << hosts.error().line();
  EXPECT_EQ((*hosts)[0].host, "fe80::1");
  EXPECT_EQ((*hosts)[2].host, "2001:db8::2:4");
  for (const HostLine& host : *hosts) EXPECT_TRUE(host.ipv6 && !host.hydra_form) << host.host;
  for (const char* bad : {"[::1]:2", "[::1]", "fe80::1%eth0", "1:2:3", "::g"}) EXPECT_FALSE(parse_hostfile("h", bad).ok()) << bad;
}

TEST(Hostfile, one_without_a_host_is_an_error) {
  for (const char* text : {"", "\n\n", "# nothing\n"}) {
    const auto hosts = parse_hostfile("hosts.txt", text);
    ASSERT_FALSE(hosts.ok());
    EXPECT_NE(hosts.error().what.find("names no host"), std::string::npos);
  }
}

}  // namespace
}  // namespace ipexrun::launcher
