#include "daemon/gateway/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace xpud::remote {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(std::string_view text) { return std::string(ParseTokens(text).status().message()); }

TEST(Tokens, AreOfATenantOrOfTheGatewaysUser) {
  const auto tokens = ParseTokens("# comment\n\n  one-token \r\nteam-a\tsecret\n");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  ASSERT_EQ(tokens->size(), 2u);
  EXPECT_EQ((*tokens)[0].tenant, "");
  EXPECT_EQ((*tokens)[0].text, "one-token");
  EXPECT_EQ((*tokens)[1].tenant, "team-a");
  EXPECT_EQ((*tokens)[1].text, "secret");
}

TEST(Tokens, ThatAreWrongSayWhereAndWhy) {
  EXPECT_THAT(ErrorOf("# nothing\n"), HasSubstr("no token"));
  EXPECT_THAT(ErrorOf("a\nb c d\n"), HasSubstr("line 2: more than"));
  EXPECT_THAT(ErrorOf("te/am secret"), HasSubstr("line 1: \"te/am\" cannot name a tenant"));
  EXPECT_THAT(ErrorOf("caf\xc3\xa9 secret"), HasSubstr("cannot name a tenant"));
  EXPECT_THAT(ErrorOf(std::string(64, 'a') + " secret"), HasSubstr("1 to 63"));
  EXPECT_THAT(ErrorOf("a secret\nb secret"), HasSubstr("line 2: the token is in an earlier line"));
}

}  // namespace
}  // namespace xpud::remote
