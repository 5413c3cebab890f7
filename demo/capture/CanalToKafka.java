import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import com.alibaba.otter.canal.connector.core.config.MQProperties;
import com.alibaba.otter.canal.connector.core.producer.AbstractMQProducer;
import com.alibaba.otter.canal.connector.core.producer.MQDestination;
import com.alibaba.otter.canal.connector.core.producer.MQMessageUtils;
import com.alibaba.otter.canal.connector.core.util.Callback;
import com.alibaba.otter.canal.instance.core.CanalMQConfig;
import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.protocol.Message;
import com.alibaba.otter.canal.server.CanalMQStarter;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Runs Canal's own server in this process and sends its flat messages to Kafka.
 *
 * <p>Parser, store, batching (CanalMQStarter) and the message itself (MQMessageUtils) are Canal's.
 * Canal's Kafka producer is not published as a library; the last step is done here as it does it:
 * one record a flat message, JSON with nulls, a null key, partition 0.
 *
 * <p>Usage: CanalToKafka MYSQL_PORT KAFKA_PORT TOPIC TABLE_REGEX; SIGTERM ends it.
 */
public final class CanalToKafka {

  public static void main(String[] args) throws Exception {
    int mysqlPort = Integer.parseInt(args[0]);
    String kafka = "127.0.0.1:" + args[1];
    String topic = args[2];
    String tables = args[3];

    CanalServerWithEmbedded server = CanalServerWithEmbedded.instance();
    server.setCanalInstanceGenerator(
        name -> {
          Canal canal = new Canal();
          canal.setId(1L);
          canal.setName(name);
          canal.setCanalParameter(parameters(mysqlPort));
          return new Instance(canal, tables, topic);
        });
    server.start();
    server.start("example");

    FlatKafkaProducer producer = new FlatKafkaProducer();
    Properties properties = new Properties();
    properties.setProperty("bootstrap.servers", kafka);
    producer.init(properties);
    new CanalMQStarter(producer).start("example");
    Thread.currentThread().join();
  }

  private static CanalParameter parameters(int mysqlPort) {
    CanalParameter p = new CanalParameter();
    InetSocketAddress address = new InetSocketAddress("127.0.0.1", mysqlPort);
    p.setSourcingType(CanalParameter.SourcingType.MYSQL);
    p.setDbAddresses(List.of(address));
    p.setMasterAddress(address);
    p.setDbUsername("canal");
    p.setDbPassword("canal");
    p.setSlaveId(4712L);
    p.setMetaMode(CanalParameter.MetaMode.MEMORY);
    p.setStorageMode(CanalParameter.StorageMode.MEMORY);
    p.setIndexMode(CanalParameter.IndexMode.MEMORY);
    p.setHaMode(CanalParameter.HAMode.HEARTBEAT);
    p.setConnectionCharset("UTF-8");
    p.setDetectingEnable(false);
    p.setTsdbEnable(false);
    p.setGtidEnable(false);
    return p;
  }

  private static final class Instance extends CanalInstanceWithManager {
    Instance(Canal canal, String tables, String topic) {
      super(canal, tables);
      mqConfig = new CanalMQConfig();
      mqConfig.setTopic(topic);
    }
  }

  private static final class FlatKafkaProducer extends AbstractMQProducer {
    private KafkaProducer<String, byte[]> producer;

    @Override
    public void init(Properties properties) {
      mqProperties = new MQProperties();
      super.init(properties);
      producer = new KafkaProducer<>(properties, new StringSerializer(), new ByteArraySerializer());
    }

    @Override
    public void send(MQDestination destination, Message message, Callback callback) {
      try {
        var rows = MQMessageUtils.buildMessageData(message, buildExecutor);
        for (var flat : MQMessageUtils.messageConverter(rows, message.getId())) {
          byte[] value = JSON.toJSONBytes(flat, JSONWriter.Feature.WriteNulls);
          producer.send(new ProducerRecord<>(destination.getTopic(), 0, null, value)).get();
        }
        callback.commit();
      } catch (Exception e) {
        e.printStackTrace();
        callback.rollback();
      }
    }

    @Override
    public void stop() {
      producer.close();
      super.stop();
    }
  }
}
