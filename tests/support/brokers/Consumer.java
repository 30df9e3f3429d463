import java.util.Enumeration;
import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Reads from a durable subscription with a selector, and prints a line of JSON for each message. */
public class Consumer {
    public static void main(String[] arguments) throws Exception {
        String url = arguments[0], user = arguments[1], password = arguments[2];
        String topic = arguments[3], selector = arguments[4], name = arguments[5];
        Connection connection = new ActiveMQConnectionFactory(user, password, url).createConnection();
        connection.setClientID(name);
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer =
            session.createDurableSubscriber(session.createTopic(topic), name, selector, false);
        connection.start();
        System.out.println("{\"event\": \"subscribed\"}");
        while (true) {
            Message message = consumer.receive();
            if (message == null) {
                return;
            }
            StringBuilder line = new StringBuilder("{\"type\": " + quoted(message.getJMSType()));
            line.append(", \"persistent\": " + (message.getJMSDeliveryMode() == 2));
            line.append(", \"correlation\": " + quoted(message.getJMSCorrelationID()));
            Enumeration<?> names = message.getPropertyNames();
            while (names.hasMoreElements()) {
                String property = (String) names.nextElement();
                line.append(", " + quoted(property) + ": " + quoted(message.getStringProperty(property)));
            }
            String text = message instanceof TextMessage ? ((TextMessage) message).getText() : null;
            line.append(", \"text\": " + quoted(text) + "}");
            System.out.println(line);
            System.out.flush();
            message.acknowledge();
        }
    }

    private static String quoted(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
