#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fail with one sentence, including what to install, if Java is missing or of a wrong version.

stop() {
  echo "$1" >&2
  exit 1
}

install="install a JDK (Debian: apt-get install openjdk-17-jre-headless) and try again."

# Spark looks for Java in this order.
if [ -n "${JAVA_HOME:-}" ]; then
  java=$JAVA_HOME/bin/java
  where=" in JAVA_HOME ($JAVA_HOME)"
else
  java=java
  where=
fi

if ! words=$("$java" -version 2>&1); then
  stop "changelane needs Java 17 or newer to run Spark, and found none$where: $install"
fi

# 'openjdk version "17.0.15" 2025-04-15', and "1.8.0_392" for Java 8.
version=$(printf '%s\n' "$words" | sed -n 's/.* version "\([^"]*\)".*/\1/p' | head -n 1)
major=$(printf '%s\n' "$version" | sed -e 's/^1\.//' -e 's/[^0-9].*//')
case $major in
  '') stop "changelane needs Java 17 or newer to run Spark, and '$java -version' names no version: $install" ;;
esac
if [ "$major" -lt 17 ]; then
  stop "changelane needs Java 17 or newer to run Spark, and found Java $version$where: $install"
fi
# Hadoop 3.4.2, inside PySpark 4.1, calls Subject.getSubject, which Java 24 removed.
if [ "$major" -ge 24 ]; then
  stop "changelane's pinned PySpark 4.1 does not run on Java 24 or newer, and found Java $version$where: install Java 17 or 21, point JAVA_HOME to it and try again."
fi
